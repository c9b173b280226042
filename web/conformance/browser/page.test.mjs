// The page in a browser: what it shows is what the log holds.
import assert from 'node:assert/strict';
import { after, before } from '../lib/test.mjs';
import { counts, launch, openPage, same as sameOn, say, shows, stored, test } from '../lib/browser.mjs';
import { newSession } from '../lib/cut.mjs';
import { startGate } from '../lib/gate.mjs';
import { freePort, start, tempDir } from '../lib/spool.mjs';
import { startWire } from '../lib/wire.mjs';

let browser, gate, spool, server, plain;

before(async () => {
  gate = await startGate();
  server = { port: await freePort(), store: `${tempDir()}/spool.db`, env: { SPOOL_TEST_GATE: gate.url } };
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
  await page.locator('main[data-status=streaming]').waitFor();
  gate.allow(session, Infinity);
  await same(page);
  await page.reload();
  await same(page);
});

/** Holds what a page asks of a route back, until the function that it returns is called. */
async function holdBack(page, path) {
  let through;
  const open = new Promise(done => (through = done));
  await page.route(`**${path}`, async route => {
    if (route.request().method() === 'GET') await open;
    await route.continue();
  });
  return through;
}

test('what is said before the page is loaded, and before it has the running answer', async () => {
  const { session, page } = await held('slow', { records: midText });
  const snapshot = await holdBack(page, `/api/chat/${session}/snapshot`);
  await page.reload();
  await page.locator('main[data-phase=loading]').waitFor();
  await say(page, 'think');
  await page.locator('main[data-phase=loading]').waitFor();
  snapshot();
  await gate.asked(session, midText + 1);
  await shows(page, 20);
  const stream = await holdBack(page, `/api/chat/${session}`);
  await page.reload();
  await page.locator('main[data-phase=ready][data-status=submitted]').waitFor();
  await stored(spool.url, session, () => say(page, 'hello'));
  await page.locator('.queue li', { hasText: 'hello' }).waitFor();
  stream();
  await shows(page, 20);
  gate.allow(session, Infinity);
  await same(page, { answers: 2 });
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
  await same(page);
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
  const snapshot = await same(page);
  assert.equal(snapshot.status, 'ended');
  await counts(page.locator('.assistant .failure'), 0);
  await page.reload();
  await same(page);
  // And the conversation goes on.
  await say(page, 'hello');
  await same(page, { answers: 2 });
});

test('two tabs', async () => {
  const { session, page } = await held('tabs', { records: midText });
  await say(page, 'think');
  await gate.asked(session, midText + 1);
  const second = await openPage(browser, page.url(), { context: page.context() });
  await shows(second, 20);
  gate.allow(session, Infinity);
  await same(page);
  await same(second);
  // A turn that one of them begins is picked up by the other.
  await say(second, 'hello');
  await same(page, { answers: 2 });
  await same(second, { answers: 2 });
});

test('stop', async () => {
  const { session, page } = await held('stop', { records: 60 });
  await say(page, 'bulk');
  await gate.asked(session, 61);
  await shows(page, 100);
  await stored(spool.url, session, () => page.getByRole('button', { name: 'Stop', exact: true }).click());
  gate.allow(session, Infinity);
  await page.locator('.interrupted').waitFor();
  const snapshot = await same(page);
  assert.equal(snapshot.status, 'ended');
  await page.reload();
  await page.locator('.interrupted').waitFor();
  await same(page);
});

test('edit and regenerate', async () => {
  const { page } = await held('edit');
  await say(page, 'hello');
  await same(page);
  await page.locator('.user').hover();
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('textbox', { name: 'Edit message' }).fill('tools please');
  await page.keyboard.press('Enter');
  await page.getByText('That took three steps').waitFor();
  await same(page);
  await counts(page.locator('.tool'), 3);
  const before = await page.locator('.assistant').getAttribute('data-id');
  await page.getByRole('button', { name: 'Regenerate' }).click();
  await page.waitForFunction(id => (document.querySelector('.assistant')?.dataset.id ?? id) !== id, before);
  await page.getByText('That took three steps').waitFor();
  await same(page);
});

test('an answer that fails says so, and again after a reload', async () => {
  const { page } = await held('fail');
  await say(page, 'fail');
  await page.locator('.assistant .failure').waitFor();
  await same(page);
  await counts(page.locator('.problem'), 0); // the same error twice
  await page.reload();
  await page.locator('.assistant .failure').waitFor();
  await same(page);
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
    assert.equal((await same(page)).status, 'paused');
    await page.reload();
    await same(page);
    const second = await openPage(browser, page.url(), { context: page.context() });
    await second.getByRole('button', { name: decision, exact: true }).waitFor();
    gate.allow(session, goesOn);
    await page.getByRole('button', { name: decision, exact: true }).press('Enter');
    await gate.asked(session, goesOn + 1);
    await page.locator('.assistant > .md').nth(1).waitFor();
    await counts(page.locator('.tool'), 1);
    await page.locator('main[data-status=streaming]').waitFor();
    gate.allow(session, Infinity);
    for (const p of [page, second]) {
      await p.getByText(said).waitFor();
      assert.equal((await same(p)).status, 'ended');
      await counts(p.locator(`.tool[data-state=${state}]`), 1);
      await counts(p.locator('.tool-answer, .tool-refused, .problem'), 0);
    }
  }

  const { session, page } = await held('decide-late', { records: asks });
  await say(page, 'approve');
  const { approval } = (await same(page)).messages.at(-1).parts.find(p => p.toolCallId);
  // Someone else is quicker, and this page never looks by itself.
  const info = `**/api/chat/${session}/info`;
  await page.route(info, route => route.abort());
  await page.reload();
  const deny = page.getByRole('button', { name: 'Deny', exact: true });
  await deny.waitFor();
  gate.allow(session, 37);
  const first = await fetch(`${spool.url}/api/chat/${session}/approvals/${approval.id}`, { method: 'POST', body: '{"approved":true}' });
  assert.equal(first.status, 200);
  await gate.asked(session, 38);
  await deny.click();
  await page.locator('.assistant > .md').nth(1).waitFor();
  await page.getByText('Another answer was given first.').waitFor();
  gate.allow(session, Infinity);
  await page.getByText('It is booked.').waitFor();
  await page.getByText('Another answer was given first.').waitFor();
  await page.unroute(info);
  await same(page);

  const place = await held('decide-place');
  await say(place.page, 'client-tool');
  await place.page.getByRole('textbox', { name: 'Share your location' }).fill('Porto');
  await place.page.keyboard.press('Enter');
  await place.page.getByText('it is in the log now').waitFor();
  const call = (await same(place.page)).messages.at(-1).parts.find(p => p.toolCallId);
  assert.deepEqual(call.output, { place: 'Porto' });
});

test('a long answer, from a new chat, by keyboard alone', async () => {
  const page = await openPage(browser, plain.url);
  await page.locator('.demo').waitFor();
  await page.keyboard.type('bulk');
  await page.keyboard.press('Enter');
  await page.getByText('That was all of it.').waitFor({ timeout: 0 }); // slow machines take minutes for it
  await same(page, { url: plain.url });
  await page.locator(`.sessions [aria-current=page]`).waitFor();
});
