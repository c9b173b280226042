// Nothing that a model, a tool or a producer says leaves the page empty or stuck.
import assert from 'node:assert/strict';
import { after, before } from '../lib/test.mjs';
import { counts, launch, openPage, say, test } from '../lib/browser.mjs';
import { newSession } from '../lib/cut.mjs';
import { hostile } from '../lib/hostile.mjs';
import { claim } from '../lib/producer.mjs';
import { start } from '../lib/spool.mjs';

let browser, spool;

before(async () => {
  [browser, spool] = await Promise.all([launch(), start()]);
});
after(async () => {
  await browser?.close();
  await spool?.stop();
});

/** A session in which an agent elsewhere is at work; it says what it is given. */
async function producer(name) {
  const session = newSession(name);
  return { session, say: await claim(spool.url, session) };
}

const inDeltas = text => (text.match(/[^]{1,60000}/g) ?? []).map(delta => ({ type: 'text_delta', delta }));

const overflows = ['> - '.repeat(1_000), '> '.repeat(5_000), '1. '.repeat(5_000), '+ '.repeat(5_000)];
const freezes = ['a_b_'.repeat(10_000), `- x\n${'a\n'.repeat(20_000)}`, `- x\n${'|a|\n'.repeat(10_000)}`, 'x'.repeat(1_000_001)];

test('texts that no Markdown parser takes are shown as they are, live and after a reload', async () => {
  const { session, say: said } = await producer('overflow');
  const page = await openPage(browser, `${spool.url}/?session=${session}`);
  const texts = [...overflows, ...freezes];
  for (const text of texts) await said(...inDeltas(text), { type: 'thinking', content: 'between', isComplete: true });
  await said({ type: 'text_delta', delta: 'the *last* words' }, { type: 'end' });
  for (const look of ['live', 'again']) {
    if (look === 'again') await page.reload();
    await page.locator('.assistant').getByText('the last words').waitFor();
    const shown = await page.locator('.assistant .as-is').evaluateAll(all => all.map(e => e.textContent));
    assert.deepEqual(shown.map(s => s.trim().length), texts.map(t => t.trim().length), look);
    assert.ok(shown.every((s, i) => texts[i].startsWith(s.trim())));
  }
  // What is merely deep is still a list in a quote.
  const ordinary = await producer('deep');
  await ordinary.say({ type: 'text_delta', delta: `${'> - '.repeat(10)}in here\n\n${'word *word*\n'.repeat(400)}` }, { type: 'end' });
  const plain = await openPage(browser, `${spool.url}/?session=${ordinary.session}`);
  await plain.locator('.assistant').getByText('in here').waitFor();
  await counts(plain.locator('.assistant .as-is'), 0);
  await counts(plain.locator('blockquote'), 10);
});

test("custom events that are named like the page's own parts are shown as their source", async () => {
  const { session, say: said } = await producer('events');
  const page = await openPage(browser, `${spool.url}/?session=${session}`);
  const odd = [null, 7, 'text', [], { id: {} }, { sessionId: 's.1', status: 'active', messages: [null] }];
  for (const data of odd) {
    for (const eventName of ['progress', 'subagent', 'subagent-live', 'error', 'run-interrupted']) {
      await said({ type: 'custom', eventName, data }, { type: 'custom', eventName, data, transient: true });
    }
  }
  const agent = { sessionId: `${session}.1`, parentSessionId: session, status: 'active', messages: [{ id: 'm', role: 'assistant', parts: [] }] };
  await said({ type: 'custom', eventName: 'subagent', data: agent });
  for (const index of [4_000_000_000, -1, 0.5, '0']) {
    await said({ type: 'custom', eventName: 'subagent-live', transient: true, data: { sessionId: agent.sessionId, messageId: 'm', index, part: { type: 'text', text: 'far' } } });
  }
  await said({ type: 'text_delta', delta: 'the last words' }, { type: 'end' });
  for (const look of ['live', 'again']) {
    if (look === 'again') await page.reload();
    await page.locator('.assistant').getByText('the last words').waitFor();
    await counts(page.locator('.assistant .custom', { hasText: 'progress' }), odd.length);
    await counts(page.locator('.assistant .custom summary', { hasText: /^subagent$/ }), odd.length);
    await page.locator('.custom').first().locator('summary').click();
    assert.equal(await page.locator('.custom pre').first().innerText(), 'null');
  }
});

/** Answers for the server with what is made up for each session. */
async function madeUp(context, sessions) {
  const of = route => sessions.get(decodeURIComponent(/\/(?:chat|stream)\/([^/?]+)/.exec(route.request().url())[1]));
  const json = (route, body) => (body ? route.fulfill({ json: body }) : route.fallback());
  await context.route('**/api/chat/*/snapshot', route => json(route, of(route)?.snapshot));
  await context.route('**/api/chat/*/checkpoints?*', route => json(route, of(route) && { items: [], total: 0, hasMore: false }));
  await context.route('**/api/chat/*/info', route => json(route, of(route) && { latestSequence: 1, status: 'ended', incarnation: 1 }));
  await context.route(/\/api\/chat\/[^/?]+$/, route => {
    const session = route.request().method() === 'GET' ? of(route) : undefined;
    if (!session) return route.fallback();
    return route.fulfill({ contentType: 'text/event-stream', body: session.frames.map((f, i) => `id: ${i + 1}\ndata: ${typeof f === 'string' ? f : JSON.stringify(f)}\n\n`).join('') });
  });
}

test('made-up messages and streams', async () => {
  const rounds = Number(process.env.SPOOL_FUZZ_ROUNDS ?? 12);
  const first = Number(process.env.SPOOL_FUZZ_SEED ?? 1);
  const sessions = new Map();
  const context = await browser.newContext();
  await madeUp(context, sessions);
  const page = await openPage(browser, spool.url, { context });
  for (let seed = first; seed < first + rounds; seed++) {
    const { part, frame, some } = hostile(seed);
    const session = `fuzz-${seed}`;
    const messages = some(4, () => some(8, part)).map((parts, i) => ({ id: `m${i}`, role: i % 2 ? 'assistant' : 'user', parts: [...parts, { type: 'text', text: `mark ${i}` }] }));
    const frames = [{ type: 'start', messageId: 'live' }, ...some(12, frame).flat(), { type: 'text-start', id: 'end' }, { type: 'text-delta', id: 'end', delta: `whole ${seed}` }, { type: 'text-end', id: 'end' }, { type: 'finish' }, '[DONE]'];
    sessions.set(session, { snapshot: { sessionId: session, status: 'active', messages, streamSequence: 0, incarnation: 1 }, frames });
    try {
      await page.evaluate(id => (location.hash = id), session);
      await page.locator('.assistant').getByText(`whole ${seed}`, { exact: true }).waitFor();
      await page.locator('main[data-status=ready]').waitFor();
      for (let i = 0; i < messages.length; i++) await page.locator('.message').nth(i).getByText(`mark ${i}`).last().waitFor();
      await page.getByRole('textbox', { name: 'Message', exact: true }).fill('still here');
      assert.deepEqual(page.problems, []);
    } catch (error) {
      throw new Error(`SPOOL_FUZZ_SEED=${seed}: ${error.message}`, { cause: error });
    }
  }
  // The same page goes on with a real session.
  await page.evaluate(id => (location.hash = id), newSession('after'));
  await say(page, 'hello');
  await page.locator('.assistant').getByText('nothing is lost').waitFor();
});
