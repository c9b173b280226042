// The page in a browser: what it shows is what the log holds.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { launch, openPage, same as sameOn, say, sessionOf, settled, shows } from '../lib/browser.mjs';
import { newSession } from '../lib/cut.mjs';
import { startGate } from '../lib/gate.mjs';
import { freePort, start, tempDir } from '../lib/spool.mjs';
import { startWire } from '../lib/wire.mjs';

let browser, gate, spool, server, plain;

before(async () => {
  gate = await startGate();
  server = { port: await freePort(), store: `${tempDir()}/spool.db`, args: ['--lease-ttl', '5s'], env: { SPOOL_TEST_GATE: gate.url } };
  [browser, spool, plain] = await Promise.all([launch(), start(server), start()]);
});
after(async () => {
  await browser?.close();
  await Promise.all([spool?.stop(), plain?.stop()]);
  gate?.close();
});

/** A page on a new session, whose run is held after so many records. */
async function held(name, { records = Infinity, url = spool.url } = {}) {
  const session = newSession(name);
  gate.allow(session, records);
  const page = await openPage(browser, `${url}/?session=${session}`);
  return { session, page };
}

const same = (page, { answers = 1, url = spool.url } = {}) => sameOn(page, url, answers);

// Records of `think` until its text has begun.
const midText = 40;

test('reload in mid-answer', async () => {
  const { session, page } = await held('reload', { records: midText });
  await say(page, 'think');
  await gate.asked(session, midText + 1);
  await shows(page, 20);
  await page.reload();
  await shows(page, 20);
  assert.equal(await page.locator('main').getAttribute('data-status'), 'streaming');
  gate.allow(session, Infinity);
  await settled(page);
  await same(page);
  await page.reload();
  await page.locator('.assistant').waitFor();
  await same(page);
  await page.context().close();
});

test('the network is lost in mid-answer', async () => {
  const wire = await startWire(spool.url);
  const { session, page } = await held('network', { records: midText, url: wire.url });
  await say(page, 'think');
  await gate.asked(session, midText + 1);
  await shows(page, 20);
  wire.cut();
  await page.locator('main[data-connection=reconnecting]').waitFor();
  gate.allow(session, Infinity);
  wire.mend();
  await settled(page);
  await page.locator('main[data-connection=live]').waitFor();
  await same(page);
  await page.context().close();
  wire.close();
});

test('the server is killed in mid-answer', async () => {
  const { session, page } = await held('kill', { records: midText });
  await say(page, 'think');
  await gate.asked(session, midText + 1);
  await page.getByText('I thought about it first: half of seven').waitFor(); // the last of the records that were let through
  const shown = await page.locator('.assistant').last().innerText();
  await spool.kill9();
  await page.locator('main[data-connection=reconnecting]').waitFor();
  assert.equal(await page.locator('.assistant').last().innerText(), shown, 'what was shown is gone');
  gate.allow(session, Infinity);
  spool = await start(server);
  // The answer goes on, in the same message and with the same words.
  await page.getByText('survives a reload, as this text does.').waitFor();
  await settled(page);
  const snapshot = await same(page);
  assert.equal(snapshot.status, 'ended');
  assert.equal(await page.locator('.assistant .failure').count(), 0);
  await page.reload();
  await settled(page);
  await same(page);
  // And the conversation goes on.
  await say(page, 'hello');
  await page.locator('.assistant').nth(1).waitFor();
  await settled(page);
  await same(page, { answers: 2 });
  await page.context().close();
});

test('two tabs', async () => {
  const { session, page } = await held('tabs', { records: midText });
  await say(page, 'think');
  await gate.asked(session, midText + 1);
  const second = await openPage(browser, page.url(), { context: page.context() });
  await shows(second, 20);
  gate.allow(session, Infinity);
  await Promise.all([settled(page), settled(second)]);
  await same(page);
  await same(second);
  // A turn that one of them begins is picked up by the other.
  await say(second, 'hello');
  await page.locator('.assistant').nth(1).waitFor();
  await page.getByText('nothing is lost').waitFor();
  await Promise.all([settled(page), settled(second)]);
  await same(page, { answers: 2 });
  await same(second, { answers: 2 });
  await page.context().close();
});

test('stop', async () => {
  const { session, page } = await held('stop', { records: 60 });
  await say(page, 'long');
  await gate.asked(session, 61);
  await shows(page, 100);
  await page.getByRole('button', { name: 'Stop' }).click();
  gate.allow(session, Infinity);
  await page.locator('.interrupted').waitFor();
  await settled(page);
  const snapshot = await same(page);
  assert.equal(snapshot.status, 'ended');
  await page.reload();
  await page.locator('.interrupted').waitFor();
  await same(page);
  await page.context().close();
});

test('edit and regenerate', async () => {
  const { page } = await held('edit');
  await say(page, 'hello');
  await settled(page);
  await page.locator('.user').hover();
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('textbox', { name: 'Edit message' }).fill('tools please');
  await page.keyboard.press('Enter');
  await page.getByText('That took three steps').waitFor();
  await settled(page);
  await same(page);
  assert.equal(await page.locator('.tool').count(), 3);
  const before = await page.locator('.assistant').getAttribute('data-id');
  await page.getByRole('button', { name: 'Regenerate' }).click();
  await page.waitForFunction(id => (document.querySelector('.assistant')?.dataset.id ?? id) !== id, before);
  await page.getByText('That took three steps').waitFor();
  await settled(page);
  await same(page);
  await page.context().close();
});

test('an answer that fails says so, and again after a reload', async () => {
  const { page } = await held('fail');
  await say(page, 'fail');
  await page.locator('.assistant .failure').waitFor();
  await settled(page);
  await same(page);
  assert.equal(await page.locator('.problem').count(), 0, 'the same error twice');
  await page.reload();
  await page.locator('.assistant .failure').waitFor();
  await same(page);
  await page.context().close();
});

test('a call that waits is answered on the page: approved, denied, after a reload, in another tab', async () => {
  // Records of `approve` until it waits, and until the text after the decision has begun.
  const asks = 22;
  for (const [decision, goesOn, said, state] of [
    ['Approve', 37, 'It is booked.', 'output-available'],
    ['Deny', 30, 'Nothing was booked.', 'output-denied'],
  ]) {
    const { session, page } = await held(`decide-${decision}`, { records: asks });
    await say(page, 'approve');
    await page.getByRole('button', { name: decision, exact: true }).waitFor();
    await page.reload();
    const second = await openPage(browser, page.url(), { context: page.context() });
    await second.getByRole('button', { name: decision, exact: true }).waitFor();
    gate.allow(session, goesOn);
    await page.getByRole('button', { name: decision, exact: true }).focus();
    await page.keyboard.press('Enter');
    await gate.asked(session, goesOn + 1);
    await page.locator('.assistant > .md').nth(1).waitFor();
    assert.equal(await page.locator('.tool').count(), 1);
    assert.equal(await page.locator('main').getAttribute('data-status'), 'streaming');
    gate.allow(session, Infinity);
    for (const p of [page, second]) {
      await p.getByText(said).waitFor();
      await settled(p);
      assert.equal((await same(p)).status, 'ended');
      assert.equal(await p.locator(`.tool[data-state=${state}]`).count(), 1);
      assert.equal(await p.locator('.tool-answer, .tool-refused, .problem').count(), 0);
    }
    await page.context().close();
  }

  const { session, page } = await held('decide-late');
  await say(page, 'approve');
  const deny = page.getByRole('button', { name: 'Deny', exact: true });
  await deny.waitFor();
  // Someone else is quicker, and this page has not looked since.
  const { approval } = (await same(page)).messages.at(-1).parts.find(p => p.toolCallId);
  await page.route(`**/stream/${session}/info`, route => route.abort());
  const first = await fetch(`${spool.url}/api/chat/${session}/approvals/${approval.id}`, { method: 'POST', body: '{"approved":true}' });
  assert.equal(first.status, 200);
  await deny.click();
  await page.getByText('Another answer came first.').waitFor();
  await page.getByText('It is booked.').waitFor();
  await settled(page);
  await same(page);
  await page.context().close();

  const place = await held('decide-place');
  await say(place.page, 'client-tool');
  await place.page.getByRole('textbox', { name: 'Share a place' }).fill('Porto');
  await place.page.keyboard.press('Enter');
  await place.page.getByText('it is in the log now').waitFor();
  await settled(place.page);
  const call = (await same(place.page)).messages.at(-1).parts.find(p => p.toolCallId);
  assert.deepEqual(call.output, { place: 'Porto' });
  await place.page.context().close();
});

test('a long answer, from a new chat, by keyboard alone', async () => {
  const page = await openPage(browser, plain.url);
  await page.locator('.demo').waitFor();
  await page.keyboard.type('long');
  await page.keyboard.press('Enter');
  await page.getByText('That was all of it.').waitFor({ timeout: 120_000 });
  await settled(page);
  await same(page, { url: plain.url });
  assert.ok(sessionOf(page));
  await page.locator(`.sessions [aria-current=page]`).waitFor();
  await page.context().close();
});
