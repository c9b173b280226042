// Sub-agents on the page.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { launch, openPage, same as sameOn, say, settled } from '../lib/browser.mjs';
import { newSession, snapshotOf } from '../lib/cut.mjs';
import { startGate } from '../lib/gate.mjs';
import { freePort, start, tempDir } from '../lib/spool.mjs';

let browser, gate, spool;

before(async () => {
  gate = await startGate();
  const server = { port: await freePort(), store: `${tempDir()}/spool.db`, env: { SPOOL_TEST_GATE: gate.url } };
  [browser, spool] = await Promise.all([launch(), start(server)]);
});
after(async () => {
  await browser?.close();
  await spool?.stop();
  gate?.close();
});

const agentsOf = async session =>
  (await snapshotOf(spool.url, session)).messages.at(-1).parts.filter(p => p.type === 'data-subagent').map(p => p.data);

/** What the page shows of each sub-agent: whose it is, its state, and its words. */
const shown = page =>
  page.evaluate(() =>
    Array.from(document.querySelectorAll('.subagent'), e => ({
      id: e.dataset.agent,
      status: e.dataset.status,
      text: Array.from(e.querySelectorAll('.md'), m => m.textContent.trim()).join(' '),
    })),
  );

const openAll = async page => {
  const folded = page.locator('.subagent-head[aria-expanded=false]');
  while ((await folded.count()) > 0) await folded.first().click();
};

const stored = agents =>
  agents.map(a => ({
    id: a.sessionId,
    status: a.status,
    text: a.messages.filter(m => m.role === 'assistant').flatMap(m => m.parts).filter(p => p.type === 'text').map(p => p.text.trim()).join(' '),
  }));

test('two sub-agents at once, over a reload in their midst', async () => {
  const session = newSession('agents');
  gate.allow(session, Infinity);
  const page = await openPage(browser, `${spool.url}/?session=${session}`);
  const midWord = gate.holdAt(session, 'subagent_end');
  await say(page, 'agents');
  await midWord;
  await page.reload();
  await page.locator('.subagent').nth(1).waitFor();
  // What the first one said before the reload is there, although nothing of it was committed to the parent's message.
  // It is done, so it stands folded; the other may not have spoken yet.
  await openAll(page);
  await page.locator('.subagent .md').first().waitFor();
  gate.allow(session, Infinity);
  await settled(page);
  await page.getByText('Both are back').waitFor();
  const agents = await agentsOf(session);
  assert.equal(agents.length, 2);
  await openAll(page);
  assert.deepEqual(await shown(page), stored(agents));
  await sameOn(page, spool.url);

  await page.reload();
  await page.locator('.subagent[data-status=ended]').nth(1).waitFor();
  await openAll(page);
  assert.deepEqual(await shown(page), stored(agents));

  await page.locator('.subagent-open').first().click();
  await page.getByText('its parent tells it what to do').waitFor();
  await page.getByText('The station says').waitFor();
  assert.equal(await page.getByRole('textbox', { name: 'Message', exact: true }).count(), 0);
  await page.getByRole('link', { name: 'Back to the chat' }).click();
  await page.getByText('Both are back').waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

for (const answer of ['Approve', 'Deny']) {
  test(`a sub-agent's question is answered where it stands: ${answer}`, async () => {
    const session = newSession('agents-approve');
    gate.allow(session, Infinity);
    const page = await openPage(browser, `${spool.url}/?session=${session}`);
    await say(page, 'agents-approve');
    await page.locator('.subagent[data-waits]').getByRole('button', { name: answer, exact: true }).waitFor();
    await settled(page);
    await page.reload();
    assert.equal(await page.locator('.tool[data-waits]').count() <= 1, true, 'the question is asked twice');
    await page.locator('.subagent[data-waits]').getByRole('button', { name: answer, exact: true }).click();
    await page.getByText('My colleague is done').waitFor();
    await settled(page);
    await page.getByText(answer === 'Approve' ? 'It is booked.' : 'I booked nothing').waitFor();
    await sameOn(page, spool.url);
    await page.context().close();
  });
}
