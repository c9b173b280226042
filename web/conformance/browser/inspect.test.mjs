// The inspector: what a run did, what it does, and why it stopped.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { accessible } from '../lib/axe.mjs';
import { launch, openPage, test } from '../lib/browser.mjs';
import { newSession, settled, snapshotOf } from '../lib/cut.mjs';
import { startGate } from '../lib/gate.mjs';
import { writeSession } from '../lib/session-file.mjs';
import { binary, start, tempDir } from '../lib/spool.mjs';
import { after, before } from '../lib/test.mjs';
import { eventually } from '../lib/wait.mjs';

const long = { turns: 300, deltas: 660 };
let browser, gate, spool, dir, records;

before(async () => {
  gate = await startGate();
  dir = tempDir();
  records = writeSession(`${dir}/long.spool`, 'long-session', long);
  execFileSync(binary(), ['import', `${dir}/long.spool`, `sqlite:${dir}/spool.db`]);
  [browser, spool] = await Promise.all([launch(), start({ store: `${dir}/spool.db`, env: { SPOOL_TEST_GATE: gate.url } })]);
});
after(async () => {
  await browser?.close();
  await spool?.stop();
  gate?.close();
});

const say = (session, message) => fetch(`${spool.url}/api/chat/${session}`, { method: 'POST', body: JSON.stringify({ message }) });
const inspect = (session, options) => openPage(browser, `${spool.url}/inspect?session=${session}`, options);
const tab = (page, name) => page.getByRole('tab', { name }).click();
const panel = page => page.locator('#tab-panel');
/** How many rows of lists are in the document. */
const rows = page => page.locator('.v-row').count();

async function finished(name, message) {
  const session = newSession(`inspect-${name}`);
  await (await say(session, message)).text();
  await settled(spool.url, session);
  return session;
}

test('a run is shown in time, by its records, and as the session was at any of them', async () => {
  const session = await finished('whole', 'tools');
  const page = await inspect(session);
  await page.getByText('The answer is complete.').waitFor();
  assert.deepEqual(await page.locator('.gantt-span').allInnerTexts(), ['Step 1', 'get_weather', 'search_notes', 'Step 2', 'plan_trip', 'Step 3']);
  await accessible(page, 'a record is not chosen');

  // A span's record, as it is stored.
  await page.locator('.gantt-span', { hasText: 'plan_trip' }).click();
  const { records: kept } = await (await fetch(`${spool.url}/api/chat/${session}/records?kept=1`)).json();
  const begun = kept.find(r => r.chunk.type === 'tool_start' && r.chunk.toolName === 'plan_trip');
  await panel(page).getByText(`Record ${begun.sequence} · kept`).waitFor();
  assert.deepEqual(JSON.parse(await panel(page).locator('pre').innerText()), begun.chunk);

  // The session as it was there, and what a record changed.
  await tab(page, 'Messages and state');
  const past = await (await fetch(`${spool.url}/api/chat/${session}/snapshot?at=${begun.sequence}`)).json();
  const shown = panel(page).locator('details').last().locator('pre');
  await eventually(async () => assert.deepEqual(JSON.parse(await shown.innerText()), past.messages.at(-1).parts));
  assert.equal(await panel(page).getByText('A run is at work.').count(), 1);
  const slider = panel(page).getByRole('slider');
  const { records: all } = await (await fetch(`${spool.url}/api/chat/${session}/records?limit=1000`)).json();
  const delta = all.find(r => r.chunk.type === 'text_delta' && r.chunk.delta.trim() !== '');
  await slider.fill(String(delta.sequence + 1));
  await slider.press('ArrowLeft');
  await panel(page).getByText(`What record ${delta.sequence} changed`).waitFor();
  assert.ok((await panel(page).locator('.changes ins').allInnerTexts()).some(t => t.includes(delta.chunk.delta.trim())));
  await accessible(page, 'messages and state');

  // The same record on several wires.
  await tab(page, 'On the wires');
  for (const wire of ['AI SDK 7', 'Merlin V2']) await panel(page).getByLabel(wire).check();
  const frames = await (await fetch(`${spool.url}/api/chat/${session}/records?after=${delta.sequence - 1}&limit=1&wire=merlin-v2`)).json();
  assert.equal(frames.records[0].frames.length, 1);
  await panel(page).getByText(frames.records[0].frames[0].trim(), { exact: true }).first().waitFor();
  await accessible(page, 'on the wires');

  // What the turn took, at a price.
  await tab(page, 'Turn');
  await panel(page).getByLabel('output').fill('1000000');
  const { usage } = await snapshotOf(spool.url, session);
  await eventually(async () => assert.equal(await panel(page).getByRole('row', { name: 'Cost' }).locator('td').innerText(), `$${usage.outputTokens.toFixed(2)}`));
  await accessible(page, 'the turn');
});

test('what happens is seen as it happens, and can be stopped', async () => {
  const session = newSession('inspect-live');
  const held = gate.holdAt(session, 'tool_end');
  const answer = say(session, 'tools');
  await held;
  const page = await inspect(session);
  await page.getByText('A run is at work.').waitFor();
  await page.locator('.gantt-span[data-open]', { hasText: 'get_weather' }).waitFor();
  const stopping = page.getByRole('button', { name: 'Stop' }).click();
  await eventually(async () => assert.ok((await (await fetch(`${spool.url}/api/chat/${session}/records?kept=1`)).json()).records.some(r => r.chunk.type === 'stop_requested')));
  gate.allow(session, Infinity);
  await stopping;
  await page.getByText('Somebody stopped it.').waitFor();
  await (await answer).text();
});

test('a model phase lasts as long as it says something', async () => {
  const session = newSession('inspect-model');
  const held = gate.holdAt(session, 'assistant_message');
  const answer = say(session, 'hello');
  await held; // all that follows its step's start is trace
  const page = await inspect(session);
  const { records: all } = await (await fetch(`${spool.url}/api/chat/${session}/records?limit=1000`)).json();
  const lasted = Math.max(1, all.at(-1).time - all.find(r => r.chunk.type === 'run_started').time);
  const words = lasted < 1000 ? `${lasted} ms` : `${(lasted / 1000).toFixed(lasted < 10_000 ? 2 : 1)} s`;
  await eventually(async () => assert.ok(lasted >= 60_000 || (await page.locator('.gantt-tools .quiet').innerText()) === words));
  gate.allow(session, Infinity);
  await (await answer).text();
});

test('an approval is decided, and a branch is made, from the inspector', async () => {
  const session = await finished('approve', 'approve');
  const page = await inspect(session);
  await page.getByText('It waits for an approval.').waitFor();
  await accessible(page, 'an approval waits');
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByText('The answer is complete.').waitFor();
  await page.locator('.v-row', { hasText: 'checkpoint_created' }).first().click();
  await page.getByRole('button', { name: 'Branch from here' }).click();
  await page.waitForURL(url => !url.search.includes(session) || url.search.includes('branch'));
  await page.getByRole('heading', { level: 1 }).filter({ hasNotText: session }).waitFor();
});

test('a session of 300 turns and 200,000 records, of which a few are in the document', async () => {
  const page = await inspect('long-session');
  await page.getByText(`${records.toLocaleString('en-US')} records`, { exact: true }).waitFor();
  assert.equal(records, long.turns * (long.deltas + 6));
  const all = page.getByRole('listbox', { name: 'Records' });
  await all.locator('.v-row', { hasText: 'run_finished' }).waitFor(); // it begins at its end
  for (const place of [0, 0.31, 0.77, 1]) {
    await all.evaluate((el, place) => (el.scrollTop = place * el.scrollHeight), place);
    const row = Math.min(Math.floor(place * records), records - 1);
    await eventually(async () => {
      const there = await all.evaluate(el => Math.floor((el.scrollTop + el.clientHeight - 1) / 26) + 1);
      assert.ok((await all.locator('.v-row', { has: page.locator('.record-seq', { hasText: new RegExp(`^${there}$`) }) }).count()) === 1, `record ${there}, from ${row}`);
    });
    assert.ok((await rows(page)) < 100);
  }
  await page.getByRole('listbox', { name: 'Turns' }).press('Home');
  await page.locator('.turn', { hasText: 'Question 1' }).first().waitFor();
  await accessible(page, 'a long session');
});

test('a file is read without a server, and what the inspector saves is one', async () => {
  const session = await finished('file', 'hello');
  const page = await inspect(session);
  await page.getByText('The answer is complete.').waitFor();
  const saving = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download' }).click();
  const saved = await (await saving).path();
  const exported = `${dir}/exported.spool`;
  execFileSync(binary(), ['export', `sqlite:${dir}/spool.db`, session, exported]);
  const chunks = file => readFileSync(file, 'utf8').split('\n').filter(l => l.includes('"seq":') && !l.includes('"spool":')).map(l => JSON.parse(l).data);
  assert.deepEqual(chunks(saved), chunks(exported));

  await page.route('**/*', route => route.abort()); // from here on there is no server
  const [spans, list] = [page.locator('.gantt-span'), page.getByRole('listbox', { name: 'Records' })];
  const before = await spans.allInnerTexts();
  for (const file of [saved, exported]) {
    await page.locator('input[type=file]').setInputFiles({ name: 'session.spool', mimeType: 'text/plain', buffer: readFileSync(file) });
    await page.locator('.badge', { hasText: 'file' }).waitFor();
    assert.deepEqual(await spans.allInnerTexts(), before);
    await list.locator('.v-row').last().click();
    await panel(page).locator('pre').waitFor();
  }
  writeFileSync(`${dir}/broken.spool`, '{"spool":"session","session":"x"}\n{"seq":');
  await page.locator('input[type=file]').setInputFiles(`${dir}/broken.spool`);
  await page.getByRole('alert').filter({ hasText: 'Line 2 is not JSON' }).waitFor();
  assert.deepEqual(await spans.allInnerTexts(), before, 'what was open stays');
  page.problems.length = 0;
});

test('a phone, the dark, and no session at all', async () => {
  const page = await openPage(browser, `${spool.url}/inspect`, { viewport: { width: 390, height: 800 }, colorScheme: 'dark' });
  await page.getByText('Choose a session').waitFor();
  await page.locator('.inspect-session').first().waitFor();
  await accessible(page, 'no session');
  await page.getByLabel('Search sessions').fill('long session');
  await page.locator('.inspect-session', { hasText: 'A long session' }).click();
  await page.getByText('The answer is complete.').waitFor();
  await accessible(page, 'a phone in the dark');
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `it is ${wide} pixels too wide`);
  const gone = await inspect('there-is-none');
  await gone.getByRole('alert').waitFor();
});
