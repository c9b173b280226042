// Sub-agents on the page.
import assert from 'node:assert/strict';
import { after, before } from '../lib/test.mjs';
import { counts, launch, openPage, same as sameOn, say, test } from '../lib/browser.mjs';
import { newSession } from '../lib/cut.mjs';
import { startGate } from '../lib/gate.mjs';
import { freePort, start, tempDir } from '../lib/spool.mjs';
import { eventually } from '../lib/wait.mjs';

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

const same = page => sameOn(page, spool.url);

/** What the page shows of each sub-agent: whose it is, its state, and its words. Those that stand folded are opened. */
async function shown(page) {
  const folded = page.locator('.subagent-head[aria-expanded=false]');
  while ((await folded.count()) > 0) await folded.first().click();
  return page.evaluate(() =>
    Array.from(document.querySelectorAll('.subagent'), e => ({
      id: e.dataset.agent,
      status: e.dataset.status,
      text: Array.from(e.querySelectorAll('.md'), m => m.textContent.trim()).join(' '),
    })),
  );
}

const textOf = a =>
  a.messages.filter(m => m.role === 'assistant').flatMap(m => m.parts).filter(p => p.type === 'text').map(p => p.text.trim()).join(' ');

test('two sub-agents at once, over a reload in the middle', async () => {
  const session = newSession('agents');
  gate.allow(session, Infinity);
  const page = await openPage(browser, `${spool.url}/?session=${session}`);
  const firstEnds = gate.holdAt(session, 'subagent_end');
  await say(page, 'agents');
  await firstEnds;
  await page.reload();
  // Both have begun, and what the one said is there, although nothing of it was committed to the parent's message. The
  // other may not have spoken yet.
  await eventually(async () => {
    const agents = await shown(page);
    assert.equal(agents.length, 2);
    assert.match(agents.map(a => a.text).join(), /The station says it will be mild.*evening\.|Begin in Alfama.*sun goes down\./);
  });
  gate.allow(session, Infinity);
  for (const again of [false, true]) {
    if (again) await page.reload();
    const agents = (await same(page)).messages.at(-1).parts.filter(p => p.type === 'data-subagent').map(p => p.data);
    const stored = agents.map(a => ({ id: a.sessionId, status: 'ended', text: textOf(a) }));
    assert.equal(stored.length, 2);
    await eventually(async () => assert.deepEqual(await shown(page), stored));
  }

  await page.locator('.subagent-open').first().click();
  await page.getByText('Only its parent can send it messages').waitFor();
  await page.getByText('The station says').waitFor();
  await counts(page.getByRole('textbox', { name: 'Message', exact: true }), 0);
  await page.getByRole('link', { name: 'Back to the chat' }).click();
  await page.getByText('Both are back').waitFor();
});

for (const answer of ['Approve', 'Deny']) {
  test(`a sub-agent's question is answered where it stands: ${answer}`, async () => {
    const session = newSession('agents-approve');
    gate.allow(session, Infinity);
    const page = await openPage(browser, `${spool.url}/?session=${session}`);
    await say(page, 'agents-approve');
    const button = page.locator('.subagent[data-waits]').getByRole('button', { name: answer, exact: true });
    await button.waitFor();
    assert.equal((await same(page)).status, 'paused');
    await page.reload();
    await same(page);
    await button.waitFor();
    await counts(page.locator('.tool[data-waits]'), 1);
    await button.click();
    await page.getByText('My colleague is done').waitFor();
    await page.getByText(answer === 'Approve' ? 'It is booked.' : 'I booked nothing').waitFor();
    assert.equal((await same(page)).status, 'ended');
  });
}
