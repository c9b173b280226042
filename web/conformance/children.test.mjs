// Sub-agents with the real clients: what they ask is answered on their root, and
// what is shown of them is what the snapshot holds.
import { loadSnapshot } from '@spool-run/client';
import assert from 'node:assert/strict';
import { after, before, test } from './lib/test.mjs';
import { all, answers, newest6, newest7, open, plain, userMessage } from './lib/clients.mjs';
import { newSession, reload, resuming, snapshotOf } from './lib/cut.mjs';
import { Network } from './lib/net.mjs';
import { freePort, start, tempDir } from './lib/spool.mjs';

let server, spool;

before(async () => {
  server = { port: await freePort(), store: `${tempDir()}/spool.db` };
  spool = await start(server);
});
after(() => spool?.stop());

async function same(client, session, chat, errors) {
  assert.deepEqual(errors, []);
  const snapshot = await snapshotOf(spool.url, session);
  assert.equal(snapshot.status, 'ended');
  assert.deepEqual(answers(chat), answers(snapshot, client));
  const again = await reload(client, spool.url, session, 'snapshot', []);
  await again.done;
  assert.deepEqual(answers(again.chat), answers(snapshot, client));
  return answers(snapshot)[0].parts;
}

for (const client of all) {
  test(`two sub-agents at once: ${client.name}`, async () => {
    const session = newSession(`agents-${client.name}`);
    const { chat, errors } = open(client, { url: spool.url, session });
    await chat.sendMessage(userMessage('user-1', 'agents'));
    const parts = await same(client, session, chat, errors);
    const agents = parts.filter(p => p.type === 'data-subagent').map(p => p.data);
    assert.deepEqual(agents.map(a => [a.sessionId, a.status, a.messages.length]), [[`${session}.1`, 'ended', 2], [`${session}.2`, 'ended', 2]]);
    assert.match(JSON.stringify(plain(agents[0].messages)), /Research the weather.*The station says/);
  });
}

/** A fetch, and a snapshot, of messages that hold what sub-agents say as parts of their own. */
const flat = (fetch = globalThis.fetch) => (input, init) => {
  const url = new URL(input);
  url.searchParams.set('agents', 'flatten');
  return fetch(url.href, init);
};
const flatSnapshot = session => loadSnapshot({ api: `${spool.url}/api/chat/${encodeURIComponent(session)}`, fetch: flat() });

async function sameFlat(client, session, chat, errors) {
  assert.deepEqual(errors, []);
  const snapshot = await flatSnapshot(session);
  assert.equal(snapshot.status, 'ended');
  assert.deepEqual(answers(chat), answers(snapshot, client));
  const headers = { 'X-Resume-From-Sequence': String(snapshot.streamSequence) };
  const again = open(client, { url: spool.url, session, fetch: flat(), messages: snapshot.messages, headers });
  await again.chat.resumeStream();
  assert.deepEqual(again.errors, []);
  assert.deepEqual(answers(again.chat), answers(snapshot, client));
  return answers(snapshot)[0].parts;
}

const says = (parts, session) =>
  parts.filter(p => p.type === 'text' && p.providerMetadata?.spool?.agent === session).map(p => p.text).join('');

for (const client of all) {
  test(`two sub-agents at once, as parts of the message: ${client.name}`, async () => {
    const session = newSession(`flat-${client.name}`);
    const { chat, errors } = open(client, { url: spool.url, session, fetch: flat() });
    await chat.sendMessage(userMessage('user-1', 'agents'));
    const parts = await sameFlat(client, session, chat, errors);
    assert.match(says(parts, `${session}.1`), /The station says/);
    assert.ok(says(parts, `${session}.2`));
    assert.ok(parts.some(p => p.type === 'text' && !p.providerMetadata));
    assert.ok(!parts.some(p => p.type === 'data-subagent' || p.state === 'streaming'));
    assert.ok(parts.some(p => p.toolCallId?.startsWith(`${session}.1/`) && p.state === 'output-available'));
  });

  test(`cut in the middle of two sub-agents, as parts of the message: ${client.name}`, async () => {
    for (let k = 3; k < 60; k += 8) {
      const session = newSession(`flat-cut-${client.name}`);
      const net = new Network({ cutAfter: k });
      const { chat, errors } = open(client, { url: spool.url, session, fetch: flat(resuming(net)) });
      await chat.sendMessage(userMessage('user-1', 'agents'));
      await sameFlat(client, session, chat, errors);
    }
  });
}

for (const client of [newest6, newest7]) {
  test(`a sub-agent's question among the parts of the message: ${client.name}`, async () => {
    const session = newSession(`flat-approve-${client.name}`);
    const { chat, errors } = open(client, { url: spool.url, session, fetch: flat() });
    await chat.sendMessage(userMessage('user-1', 'agents-approve'));
    const asked = answers(chat)[0].parts.find(p => p.state === 'approval-requested');
    assert.match(asked.toolCallId, new RegExp(`^${session}\\.1/`));
    await chat.addToolApprovalResponse({ id: asked.approval.id, approved: true });
    assert.ok(client.sdk.lastAssistantMessageIsCompleteWithApprovalResponses({ messages: chat.messages }));
    await chat.sendMessage();
    const parts = await sameFlat(client, session, chat, errors);
    assert.equal(parts.find(p => p.toolCallId === asked.toolCallId).state, 'output-available');
    assert.match(says(parts, `${session}.1`), /It is booked/);
  });
}

for (const client of [newest6, newest7]) {
  for (const approved of [true, false]) {
    test(`a sub-agent's question after a restart: ${approved ? 'approve' : 'deny'}, ${client.name}`, async () => {
      const session = newSession(`agents-approve-${client.name}`);
      const { chat, errors } = open(client, { url: spool.url, session });
      await chat.sendMessage(userMessage('user-1', 'agents-approve'));
      assert.deepEqual(errors, []);
      const asked = answers(chat)[0].parts.find(p => p.state === 'approval-requested');
      assert.match(asked.toolCallId, new RegExp(`^${session}\\.1/`));
      await spool.stop();
      spool = await start(server);
      await chat.addToolApprovalResponse({ id: asked.approval.id, approved, reason: 'as I like' });
      // The parent's own call does not keep the client from sending by itself.
      assert.ok(client.sdk.lastAssistantMessageIsCompleteWithApprovalResponses({ messages: chat.messages }));
      await chat.sendMessage();
      const parts = await same(client, session, chat, errors);
      assert.equal(parts.find(p => p.toolCallId === asked.toolCallId).state, approved ? 'output-available' : 'output-denied');
      assert.match(JSON.stringify(parts.find(p => p.type === 'data-subagent')), approved ? /It is booked/ : /I booked nothing/);
    });
  }
}
