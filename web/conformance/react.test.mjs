// The React hooks with the real clients of the 6 and 7 lines, under StrictMode, against a server.
import { act, eventually, renderHook } from '../react/test/dom.mjs';
import assert from 'node:assert/strict';
import { Chat, useChat } from '@ai-sdk/react';
import * as hooks6 from '@spool-run/react';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls } from 'ai';
import { userMessage } from './lib/clients.mjs';
import { newSession, resuming, settled, snapshotOf } from './lib/cut.mjs';
import { startGate } from './lib/gate.mjs';
import { hooks7 } from './lib/hooks7.mjs';
import { Network } from './lib/net.mjs';
import { start } from './lib/spool.mjs';
import { after, before, test } from './lib/test.mjs';

let gate, spool;
const lines = [
  { name: 'ai 6', hooks: hooks6 },
  { name: 'ai 7', hooks: undefined }, // loaded before the tests begin
];

before(async () => {
  lines[1].hooks = await hooks7();
  gate = await startGate();
  spool = await start({ env: { SPOOL_TEST_GATE: gate.url } });
});
after(async () => {
  await spool?.stop();
  gate?.close();
});

const api = session => `${spool.url}/api/chat/${session}`;
const json = value => JSON.parse(JSON.stringify(value));

/** What a page shows when all is said is what the server has. */
async function same(session, messages) {
  await eventually(async () => {
    const { messages: stored, status } = await snapshotOf(spool.url, session);
    assert.notEqual(status, 'active');
    assert.deepEqual(withoutTransient(messages()), withoutTransient(stored));
  });
}
const withoutTransient = messages => json(messages).map(m => ({ id: m.id, role: m.role, texts: m.parts.filter(p => p.type === 'text').map(p => p.text), tools: m.parts.filter(p => p.toolCallId).map(p => [p.toolCallId, p.state, p.output]) }));

/** A page with useSession, and its messages in a component of their own. */
async function page(hooks, session, options = {}) {
  const view = await renderHook(o => hooks.useSession(o), { api: api(session), pollInterval: 20, ...options });
  const list = await renderHook(({ session }) => hooks.useSessionMessages(session, 5), { session: view.result().session });
  return {
    state: view.result,
    renders: view.renders,
    session: view.result().session,
    messages: () => list.result(),
    close: async () => {
      await list.unmount();
      await view.unmount();
    },
  };
}

for (const line of lines) {
  const { name } = line;
  test(`a chat over a cut, a reload and a second tab: ${name}`, async () => {
    const session = newSession('hooks');
    const held = gate.holdAt(session, 'tool_start');
    const net = new Network({ cutAfter: 12 });
    const first = await page(line.hooks, session, { snapshot: null, fetch: net.fetch });
    await act(async () => first.session.send('tools'));
    await held;
    await eventually(() => assert.notEqual(first.messages().at(-1)?.parts.length ?? 0, 0));
    const renders = first.renders();
    const second = await page(line.hooks, session); // loads the snapshot, and follows the run
    await eventually(() => assert.deepEqual([second.state().phase, second.messages().length], ['ready', 2]));
    gate.allow(session, Infinity);
    for (const tab of [first, second]) {
      await same(session, tab.messages);
      await eventually(() => assert.deepEqual([tab.state().status, tab.state().problem], ['ready', undefined]));
    }
    assert.ok(net.requests.length > 1, 'nothing was cut');
    assert.ok(first.renders() - renders < 20, `the page rendered ${first.renders() - renders} times beside its messages`);
    await act(async () => second.session.send('hello')); // from another tab
    await eventually(() => assert.equal(first.messages().length, 4));
    await same(session, first.messages);
    for (const tab of [first, second]) await tab.close();
  });

  test(`an approval that is given elsewhere: ${name}`, async () => {
    const session = newSession('hooks-approve');
    const here = await page(line.hooks, session, { snapshot: null });
    await act(async () => here.session.send('approve'));
    const waiting = () => here.messages().at(-1)?.parts.find(p => p.state === 'approval-requested');
    await eventually(() => assert.ok(waiting()));
    await settled(spool.url, session);
    const elsewhere = await page(line.hooks, session);
    await eventually(() => assert.equal(elsewhere.state().phase, 'ready'));
    await act(async () => elsewhere.session.decide(waiting().approval.id, true));
    await eventually(() => assert.equal(waiting(), undefined));
    await same(session, here.messages);
    await assert.rejects(
      act(async () => elsewhere.session.decide('none', true)),
      e => e.name === 'RequestError' && e.status === 404,
    );
    for (const tab of [here, elsewhere]) await tab.close();
  });

  test(`a stop from another tab: ${name}`, async () => {
    const session = newSession('hooks-stop');
    const held = gate.holdAt(session, 'tool_start');
    const here = await page(line.hooks, session, { snapshot: null });
    await act(async () => here.session.send('tools'));
    await held;
    const elsewhere = await page(line.hooks, session);
    await eventually(() => assert.equal(elsewhere.state().status, 'streaming'));
    const stopping = act(async () => elsewhere.session.stop());
    gate.allow(session, Infinity);
    await stopping;
    await eventually(() => assert.equal(here.state().status, 'ready'));
    assert.equal((await snapshotOf(spool.url, session)).reason, 'stopped');
    for (const tab of [here, elsewhere]) await tab.close();
  });

  test(`a message that was refused comes back: ${name}`, async () => {
    const session = newSession('hooks-busy');
    const here = await page(line.hooks, session, { pollInterval: 60_000 });
    await eventually(() => assert.equal(here.state().phase, 'ready')); // there is no such session
    const held = gate.holdAt(session, 'tool_start');
    const sent = fetch(api(session), { method: 'POST', body: '{"message":"tools"}' }).then(r => r.text());
    await held; // and the page does not know that a run is at work
    await act(async () => here.session.send('hello'));
    await eventually(() => assert.equal(here.state().returned, 'hello'));
    assert.match(here.state().problem.message, /still being answered/);
    await eventually(() => assert.equal(here.state().status, 'streaming'));
    await act(async () => here.session.send('hello'));
    await eventually(() => assert.deepEqual(here.state().timeline.waiting.map(w => w.whenBusy), ['queue']));
    gate.allow(session, Infinity);
    await sent;
    await eventually(() => assert.equal(here.messages().length, 4));
    await same(session, here.messages);
    await here.close();
  });
}

// What an application with a useChat of its own adds. Its hook is the workspace's, of the 6 line.
test('useResumableChat and useResumeClientTools beside a stock useChat', async () => {
  const { DataFeed, useResumableChat, useResumeClientTools } = hooks6;
  const feed = new DataFeed();
  const transport = new DefaultChatTransport({ api: `${spool.url}/api/chat`, fetch: resuming(new Network({ cutAfter: 7 })) });
  const app = session => {
    const init = { id: session, transport, onData: feed.onData, onError: feed.onError, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls };
    const it = new Chat(init);
    return renderHook(() => {
      const chat = useChat({ chat: it });
      const resumable = useResumableChat({ snapshotUrl: `${api(session)}/snapshot`, setMessages: chat.setMessages, resumeStream: chat.resumeStream, data: feed, pollInterval: 20 });
      useResumeClientTools({ chat, toolHandlers: { get_location: () => ({ place: 'Bern' }) } });
      return { chat, resumable };
    });
  };
  const asking = newSession('hooks-tool');
  const first = await app(asking);
  await eventually(() => assert.equal(first.result().resumable.isLoading, false));
  await act(async () => first.result().chat.sendMessage(userMessage('user-1', 'client-tool')));
  await eventually(async () => assert.equal((await snapshotOf(spool.url, asking)).status, 'ended'));
  await eventually(() => assert.equal(first.result().chat.status, 'ready'));
  await same(asking, () => first.result().chat.messages);
  assert.match(JSON.stringify(first.result().chat.messages), /Bern/);
  await first.unmount();

  const session = newSession('hooks-reload');
  const held = gate.holdAt(session, 'tool_start');
  const sent = fetch(api(session), { method: 'POST', body: '{"message":"tools"}' }).then(r => r.text());
  await held;
  const reloaded = await app(session);
  await eventually(() => assert.equal(reloaded.result().chat.status, 'streaming'));
  gate.allow(session, Infinity);
  await sent;
  await same(session, () => reloaded.result().chat.messages);
  await reloaded.unmount();
});
