// What docs/use-chat.md says of the stock client: what works with nothing, and what
// one line adds. Nothing here comes from @spool-run/client.
import assert from 'node:assert/strict';
import { after, before, test } from './lib/test.mjs';
import { all, answers, newest6, newest7, userMessage } from './lib/clients.mjs';
import { newSession, settled, snapshotOf } from './lib/cut.mjs';
import { startGate } from './lib/gate.mjs';
import { start } from './lib/spool.mjs';
import { eventually } from './lib/wait.mjs';

let gate, spool, named;

before(async () => {
  gate = await startGate();
  spool = await start({ env: { SPOOL_TEST_GATE: gate.url } });
  named = await start({ args: ['--static-tools'] });
});
after(async () => {
  await spool?.stop();
  await named?.stop();
  gate?.close();
});

const busy = 'The previous message is still being answered. Wait until the answer is complete, or stop it, and send this message again.';
const text = chat => answers(chat).flatMap(m => m.parts.filter(p => p.type === 'text').map(p => p.text)).join('');

/** The stock chat with the stock transport, as the page has them. */
function stock(client, id, { url = spool.url, transport, ...init } = {}) {
  const errors = [];
  const chat = new client.Chat({ id, transport: new client.sdk.DefaultChatTransport({ api: `${url}/api/chat`, ...transport }), onError: e => errors.push(e), ...init });
  return { chat, errors };
}

/** A chat whose answer is held in its middle. */
async function answering(client, way, init) {
  const session = newSession(`stock-${way}-${client.name}`);
  const held = gate.holdAt(session, 'tool_start');
  const { chat, errors } = stock(client, session, init);
  const done = chat.sendMessage(userMessage('user-1', 'tools'));
  await held;
  await eventually(() => assert.notEqual(text(chat), ''));
  return { session, chat, errors, done };
}

for (const client of all) {
  test(`sends, streams and comes back with nothing: ${client.name}`, async () => {
    const session = newSession(`stock-${client.name}`);
    const { chat, errors } = stock(client, session);
    await chat.sendMessage({ text: 'hello' });
    assert.deepEqual([errors, chat.status, chat.messages.length], [[], 'ready', 2]);
    const again = stock(client, session); // resume: true calls this
    await again.chat.resumeStream();
    assert.deepEqual(again.errors, []);
    assert.equal(text(again.chat), text(chat));
  });

  test(`a busy session's refusal can be shown as it is: ${client.name}`, async () => {
    const { session, chat, done, errors } = await answering(client, 'busy');
    const codes = [];
    const watching = async (...request) => {
      const response = await fetch(...request);
      codes.push([response.status, response.headers.get('X-Spool-Error')]);
      return response;
    };
    const other = stock(client, session, { transport: { fetch: watching } });
    await other.chat.sendMessage(userMessage('user-2', 'hello'));
    assert.equal(other.chat.status, 'error');
    assert.equal(other.chat.error.message, busy);
    assert.deepEqual(codes, [[409, 'busy']]);
    assert.equal(other.chat.messages.at(-1).role, 'user', 'the refused message stays in the list');
    const json = await fetch(`${spool.url}/api/chat/${session}`, { method: 'POST', headers: { Accept: 'application/json' }, body: '{"message":"hello"}' });
    const problem = await json.json();
    assert.deepEqual([json.status, problem.code, new URL(problem.attach, json.url).pathname], [409, 'busy', `/api/chat/${session}/stream`]);
    gate.allow(session, Infinity);
    await done;
    assert.deepEqual(errors, []);
  });

  test(`stop() alone hangs up, and the run goes on: ${client.name}`, async () => {
    const { session, chat, done } = await answering(client, 'hang-up');
    await chat.stop();
    await done;
    assert.equal(chat.status, 'ready');
    assert.equal((await snapshotOf(spool.url, session)).status, 'active');
    gate.allow(session, Infinity);
    await settled(spool.url, session);
    assert.equal((await snapshotOf(spool.url, session)).reason, 'completed');
  });

  test(`one line stops the run, and the chat is ready for more: ${client.name}`, async () => {
    const { session, chat, errors, done } = await answering(client, 'stop');
    const stopping = fetch(`${spool.url}/api/chat/${chat.id}/stop`, { method: 'POST' });
    gate.allow(session, Infinity);
    assert.equal((await stopping).status, 200);
    await done;
    assert.deepEqual([errors, chat.status], [[], 'ready']);
    const said = text(chat);
    assert.notEqual(said, '');
    const snapshot = await snapshotOf(spool.url, session);
    assert.deepEqual([snapshot.reason, text(snapshot)], ['stopped', said]);
    await chat.sendMessage({ text: 'hello' });
    assert.deepEqual([errors, chat.status, answers(chat).length], [[], 'ready', 2]);
  });

  test(`one line queues what is said meanwhile: ${client.name}`, async () => {
    const { session, errors, done } = await answering(client, 'queue');
    const other = stock(client, session, { transport: { body: { whenBusy: 'queue' } } });
    const second = other.chat.sendMessage(userMessage('user-2', 'hello'));
    await eventually(async () => assert.equal((await snapshotOf(spool.url, session)).waiting?.length, 1));
    gate.allow(session, Infinity);
    await Promise.all([done, second]);
    assert.deepEqual([errors, other.errors], [[], []]);
    assert.equal(answers(await snapshotOf(spool.url, session)).length, 2);
  });

  test(`tools have one part type, and a page can ask for typed ones: ${client.name}`, async () => {
    for (const [url, type] of [[spool.url, 'dynamic-tool'], [named.url, 'tool-get_weather']]) {
      const { chat, errors } = stock(client, newSession(`stock-names-${client.name}`), { url });
      await chat.sendMessage({ text: 'tools' });
      assert.deepEqual(errors, []);
      const part = answers(chat)[0].parts.find(p => client.sdk.isToolUIPart(p));
      assert.deepEqual([part.type, client.sdk.getToolName(part)], [type, 'get_weather']);
      const snapshot = await snapshotOf(url, chat.id);
      assert.equal(answers(snapshot)[0].parts.find(p => p.toolCallId === part.toolCallId).type, type);
    }
  });
}

for (const client of [newest6, newest7]) {
  const { sdk } = client;
  const every = messages => sdk.lastAssistantMessageIsCompleteWithToolCalls(messages) || sdk.lastAssistantMessageIsCompleteWithApprovalResponses(messages);
  for (const [scene, answer] of [
    ['approve', (chat, part) => chat.addToolApprovalResponse({ id: part.approval.id, approved: true })],
    ['client-tool', (chat, part) => chat.addToolOutput({ tool: sdk.getToolName(part), toolCallId: part.toolCallId, output: { lat: 38.7, lon: -9.1 } })],
  ]) {
    test(`one line sends answers on: ${scene}, ${client.name}`, async () => {
      const session = newSession(`stock-${scene}-${client.name}`);
      const { chat, errors } = stock(client, session, { sendAutomaticallyWhen: ({ messages }) => every({ messages }) });
      await chat.sendMessage({ text: scene });
      const part = answers(chat)[0].parts.find(p => ['approval-requested', 'input-available'].includes(p.state));
      await answer(chat, part);
      await settled(spool.url, session);
      await eventually(() => assert.equal(chat.status, 'ready'));
      assert.deepEqual(errors, []);
      assert.equal((await snapshotOf(spool.url, session)).status, 'ended');
      assert.equal(answers(chat).length, 1);
    });
  }
}
