// A server that dies in the middle of an answer, as the page shows it: what a user has read never goes away.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before } from '../lib/test.mjs';
import { counts, launch, openPage, same, say, test } from '../lib/browser.mjs';
import { newSession } from '../lib/cut.mjs';
import { startGate } from '../lib/gate.mjs';
import { freePort, start, tempDir } from '../lib/spool.mjs';

let browser, gate, next;

// A gate counts what one process appends: the one that takes over has its own.
before(async () => {
  [browser, gate, next] = await Promise.all([launch(), startGate(), startGate()]);
});
after(async () => {
  await browser?.close();
  gate?.close();
  next?.close();
});

const restart = server => start({ ...server, env: { SPOOL_TEST_GATE: next.url } });

/**
 * Notes, whenever the page changes, how much of the last answer is to be read, and each time that it is less than before.
 * Reasoning that is complete is folded away, but not while its run is lost.
 */
const watch = page =>
  page.evaluate(() => {
    const seen = (window.seen = { text: 0, all: 0, calls: 0, shrunk: [], stale: 0 });
    const letters = list => Array.from(list ?? [], e => e.textContent).join('').replace(/[^\p{L}\p{N}]/gu, '').length;
    const look = () => {
      const answer = Array.from(document.querySelectorAll('.assistant')).at(-1);
      const { recovering, connection } = document.querySelector('main').dataset;
      const now = { text: letters(answer?.querySelectorAll(':scope > .md')), all: letters(answer?.querySelectorAll('.md')), calls: answer?.querySelectorAll('.tool').length ?? 0 };
      const less = now.text < seen.text || now.calls < seen.calls || (now.all < seen.all && (recovering || connection !== 'live'));
      if (less) seen.shrunk.push(`${JSON.stringify(seen)} → ${JSON.stringify(now)}`);
      Object.assign(seen, now, { stale: Math.max(seen.stale, answer?.querySelectorAll('[data-stale]').length ?? 0) });
    };
    look();
    new MutationObserver(look).observe(document.querySelector('main'), { subtree: true, childList: true, characterData: true, attributes: true });
  });
const seen = page => page.evaluate(() => window.seen);

// Where a run is killed, and the last that the page shows of it by then.
const discarding = [
  { scene: 'long', name: 'an answer is killed in a text, and written again: what was shown stays until then', records: 60, until: 'tied to a line, and let the', again: 20 },
  { scene: 'think', name: 'an answer is killed in its reasoning, and written again: what was shown stays until then', records: 14, until: 'It should arrive before the answer,', again: 8 },
  { scene: 'tools', name: 'an answer is killed in the arguments of a call, and written again: what was shown stays until then', hold: 'tool_arg_stream_end', until: 'packing for Lisbon', again: 3 },
  { scene: 'tools', name: 'an answer is killed in its third step, and written again: what was shown stays until then', records: 120, until: 'The weather will', again: 12 },
];

for (const { scene, name, records, hold, until, again } of discarding) {
  test(name, async () => {
    const server = { port: await freePort(), store: `${tempDir()}/spool.db`, env: { SPOOL_TEST_GATE: gate.url } };
    let spool = await start(server);
    const session = newSession(`recover-${scene}`);
    const at = hold ? gate.holdAt(session, hold) : gate.asked(session, records + 1);
    if (records) gate.allow(session, records);
    const page = await openPage(browser, `${spool.url}/?session=${session}`);
    await say(page, scene);
    await at;
    await page.locator('.assistant').filter({ hasText: until }).waitFor();
    await watch(page);
    await spool.kill9();
    await page.locator('main[data-connection=reconnecting]').waitFor();
    const shown = await seen(page);
    assert.ok(shown.all > 0);
    next.allow(session, again); // some words of the new answer, fewer than of the old one
    spool = await restart(server);
    await next.asked(session, again + 1);
    await page.locator('main[data-recovering]').waitFor();
    await page.getByRole('status').filter({ hasText: 'what is dimmed is being written again' }).waitFor();
    assert.equal(await page.locator('.connection').innerText(), 'Recovering…');
    await page.locator('.assistant [data-stale]').first().waitFor();
    assert.deepEqual((await seen(page)).shrunk, []);
    next.allow(session, Infinity);
    await same(page, spool.url);
    await counts(page.locator('[data-stale], .recovering, main[data-recovering]'), 0);
    assert.deepEqual((await seen(page)).shrunk, []);
    await spool.stop();
  });
}

test('an answer is killed and resumed: nothing is dimmed', async () => {
  const records = 60;
  const server = { port: await freePort(), store: `${tempDir()}/spool.db`, args: ['--model', 'scripted'], env: { SPOOL_TEST_GATE: gate.url } };
  let spool = await start(server);
  const session = newSession('resumed');
  gate.allow(session, records);
  const page = await openPage(browser, `${spool.url}/?session=${session}`);
  await say(page, 'long');
  await gate.asked(session, records + 1);
  await page.locator('.assistant').filter({ hasText: 'tied to a line' }).waitFor();
  await watch(page);
  await spool.kill9();
  await page.locator('main[data-connection=reconnecting]').waitFor();
  next.allow(session, 1);
  spool = await restart(server);
  await page.locator('main[data-recovering][data-connection=live]').waitFor();
  next.allow(session, Infinity);
  await same(page, spool.url);
  const { shrunk, stale } = await seen(page);
  assert.deepEqual({ shrunk, stale }, { shrunk: [], stale: 0 });
  await counts(page.locator('.recovering, main[data-recovering]'), 0);
  await spool.stop();
});

test('while the storage does not answer the page says so, and the answer goes on afterwards', async () => {
  const store = `${tempDir()}/spool.db`;
  const spool = await start({ store, args: ['--demo-rate', '100'] });
  const session = newSession('away');
  const page = await openPage(browser, `${spool.url}/?session=${session}`);
  await say(page, 'long');
  await page.locator('.assistant').filter({ hasText: 'knotted rope' }).waitFor();
  const banner = page.getByRole('status').filter({ hasText: "The server's storage is not answering." });
  await counts(banner, 0);
  const locker = spawn('sqlite3', [store], { stdio: ['pipe', 'pipe', 'inherit'] });
  locker.stdin.write("BEGIN IMMEDIATE;\nSELECT 'locked';\n");
  assert.equal(String((await once(locker.stdout, 'data'))[0]), 'locked\n');
  await banner.waitFor();
  assert.equal(await banner.innerText(), "The server's storage is not answering. The run goes on when it is back.");
  locker.stdin.end('ROLLBACK;\n');
  await once(locker, 'close');
  await banner.waitFor({ state: 'detached' });
  await same(page, spool.url);
  await spool.stop();
});
