// The page and a session's time: pause and go on, go back, branch, and what is
// said while an answer is written.
import assert from 'node:assert/strict';
import { after, before } from '../lib/test.mjs';
import { counts, launch, openPage, same as sameOn, say, sessionOf, shows, stored, test } from '../lib/browser.mjs';
import { newSession } from '../lib/cut.mjs';
import { startGate } from '../lib/gate.mjs';
import { start } from '../lib/spool.mjs';

let browser, gate, spool;

before(async () => {
  gate = await startGate();
  [browser, spool] = await Promise.all([launch(), start({ env: { SPOOL_TEST_GATE: gate.url } })]);
});
after(async () => {
  await browser?.close();
  await spool?.stop();
  gate?.close();
});

const same = (page, answers = 1) => sameOn(page, spool.url, answers);

/** A page on a new session, whose run is held after so many records. */
async function held(name, records = Infinity) {
  const session = newSession(name);
  gate.allow(session, records);
  return { session, page: await openPage(browser, `${spool.url}/?session=${session}`) };
}

const end = 'a step each, and after each a checkpoint';
const checkpoints = page => page.locator('.checkpoint');
const choose = async (page, mark, what) => {
  await mark.getByRole('button', { name: /^Checkpoint/ }).press('Enter');
  const item = page.getByRole('menuitem', { name: what });
  await item.waitFor();
  // By keyboard alone.
  while (!(await item.evaluate(e => e === document.activeElement))) await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
};

test('branch at a checkpoint, and go another way there', async () => {
  const { session, page } = await held('branch');
  await say(page, 'branch');
  await page.getByText(end).waitFor();
  await checkpoints(page).nth(3).waitFor();
  const source = await same(page);
  await choose(page, checkpoints(page).nth(0), 'Branch from here');
  await page.locator('.origin').waitFor();
  const id = sessionOf(page);
  assert.notEqual(id, session);
  await page.getByRole('button', { name: 'Continue' }).waitFor();
  const made = await same(page);
  assert.deepEqual([made.status, made.reason, made.origin.sessionId], ['paused', 'interrupted', session]);
  assert.equal(made.state.itinerary.length, 1);
  await counts(page.locator('.tool'), 1);
  await page.locator(`.sessions [aria-current=page] .mark-branch`).waitFor();
  await say(page, 'branch south');
  await page.getByText('South it is').waitFor();
  const south = await same(page, 2);
  assert.deepEqual(south.state.itinerary.map(t => t.city), ['Lisbon', 'Évora', 'Faro']);
  await page.reload();
  await page.getByText('South it is').waitFor();
  await same(page, 2);
  // The source is where it was, one click away.
  await page.locator('.origin a').click();
  await page.getByText(end).waitFor();
  assert.equal(sessionOf(page), session);
  const back = await same(page);
  assert.equal(back.streamSequence, source.streamSequence);
});

test('a message that waits is shown in every tab, and answered in turn', async () => {
  const { session, page } = await held('queue', 40);
  await say(page, 'think');
  await gate.asked(session, 41);
  await shows(page, 20);
  const second = await openPage(browser, page.url(), { context: page.context() });
  await shows(second, 20);
  const elsewhere = await openPage(browser, page.url()); // another device: no tab tells it
  await shows(elsewhere, 20);
  const box = page.getByRole('textbox', { name: 'Message', exact: true });
  await box.fill('hello');
  await page.getByRole('radio', { name: 'Queue', checked: true }).waitFor();
  await stored(spool.url, session, () => box.press('Enter'));
  for (const p of [page, second, elsewhere]) await p.locator('.queue li[data-when=queue]', { hasText: 'hello' }).waitFor();
  await page.reload();
  await page.locator('.queue li', { hasText: 'hello' }).waitFor();
  await shows(page, 20);
  await counts(page.locator('.user'), 1);
  gate.allow(session, Infinity);
  for (const p of [page, second, elsewhere]) {
    await p.getByText('nothing is lost').waitFor();
    await same(p, 2);
    await counts(p.locator('.queue'), 0);
  }
});

test('a page that comes between two turns shows what was said', async () => {
  const info = async session => (await fetch(`${spool.url}/stream/${session}/info`)).json();
  const other = newSession('count');
  await (await fetch(`${spool.url}/api/chat/${other}`, { method: 'POST', body: '{"message":"think"}' })).text();
  const records = (await info(other)).latestSequence - 1; // all but the command
  const { session, page } = await held('between', 40);
  await say(page, 'think');
  await gate.asked(session, 41);
  await shows(page, 20);
  await stored(spool.url, session, () => say(page, 'hello'));
  gate.allow(session, records);
  await gate.asked(session, records + 1);
  await page.reload();
  await page.locator('.user', { hasText: 'hello' }).waitFor();
  await page.locator('main[data-status=streaming], main[data-status=submitted]').waitFor();
  gate.allow(session, Infinity);
  await page.getByText('nothing is lost').waitFor();
  await same(page, 2);
});

// Records of `branch` until the text of its second step has begun.
const midSecond = 44;

test('pause behind a step, and go on after a reload', async () => {
  const { session, page } = await held('pause', midSecond);
  await say(page, 'branch');
  await gate.asked(session, midSecond + 1);
  await page.getByText('Then halfway').waitFor();
  await stored(spool.url, session, () => page.keyboard.press('Control+.'));
  gate.allow(session, Infinity);
  await page.getByText('Paused.').waitFor();
  const paused = await same(page);
  assert.deepEqual([paused.status, paused.reason], ['paused', 'interrupted']);
  assert.deepEqual(paused.state.itinerary.map(t => t.city), ['Lisbon', 'Coimbra']);
  await counts(page.locator('.tool'), 2);
  await page.reload();
  const goOn = page.getByRole('button', { name: 'Continue' });
  await goOn.waitFor();
  await same(page);
  await goOn.press('Enter');
  await page.getByText(end).waitFor();
  const whole = await same(page);
  assert.equal(whole.status, 'ended');
  assert.deepEqual(whole.state.itinerary.map(t => t.city), ['Lisbon', 'Coimbra', 'Porto']);
  await counts(page.locator('.tool'), 3);
  await counts(goOn, 0);
});

test('rewind to a checkpoint, seen by another tab', async () => {
  const { page } = await held('rewind');
  await say(page, 'branch');
  await page.getByText(end).waitFor();
  await checkpoints(page).nth(3).waitFor();
  const second = await openPage(browser, page.url(), { context: page.context() });
  await second.getByText(end).waitFor();
  const first = (await same(page)).messages.at(-1);
  await choose(page, checkpoints(page).nth(0), 'Rewind to here');
  for (const p of [page, second]) {
    // The answer as it was at the checkpoint, and what the journey became since.
    await p.locator('.assistant').nth(1).getByText(end).waitFor();
    const { state, messages, status } = await same(p, 2);
    assert.equal(status, 'ended');
    assert.equal(messages[1].id, first.id);
    assert.deepEqual(state.itinerary.map(t => t.city), ['Lisbon', 'Coimbra', 'Porto']);
    await counts(p.locator('.assistant').nth(0).locator('.tool'), 1);
    await counts(p.locator('.assistant').nth(1).locator('.tool'), 2);
  }
});

test('a message steers an answer, and another takes its place', async () => {
  for (const [mode, ends, cities] of [
    ['Steer', undefined, ['Lisbon', 'Coimbra']],
    ['Interrupt', 'Stopped.', ['Lisbon']],
  ]) {
    const { session, page } = await held(mode.toLowerCase(), midSecond);
    await say(page, 'branch');
    await gate.asked(session, midSecond + 1);
    await page.getByText('Then halfway').waitFor();
    const box = page.getByRole('textbox', { name: 'Message', exact: true });
    await box.fill('hello');
    await page.getByRole('radio', { name: 'Queue' }).focus();
    for (const last of mode === 'Steer' ? ['ArrowRight'] : ['ArrowRight', 'ArrowRight']) await page.keyboard.press(last);
    await page.getByRole('radio', { name: mode, checked: true }).waitFor();
    await stored(spool.url, session, () => box.press('Enter'));
    gate.allow(session, Infinity);
    await page.getByText('nothing is lost').waitFor();
    const { state } = await same(page, 2);
    assert.deepEqual(state.itinerary.map(t => t.city), cities);
    await counts(page.locator('.assistant').first().locator('.interrupted'), ends ? 1 : 0);
    await counts(page.locator('.queue'), 0);
  }
});

test('try again what failed', async () => {
  const { page } = await held('retry');
  await say(page, 'fail');
  const retry = page.getByRole('button', { name: 'Retry' });
  await same(page);
  const before = await page.locator('.assistant').getAttribute('data-id');
  await retry.click();
  await page.waitForFunction(id => (document.querySelector('.assistant')?.dataset.id ?? id) !== id, before);
  await retry.waitFor();
  await same(page);
  await counts(page.locator('.problem'), 0);
});
