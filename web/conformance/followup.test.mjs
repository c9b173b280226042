// A page that has been open since before a turn comes back to that turn, with the
// position of the snapshot that it was built from.
import { loadSnapshot, ResumableChatTransport } from '@spool-run/client';
import assert from 'node:assert/strict';
import { after, before, test } from './lib/test.mjs';
import { all, answers, newest6, newest7, open, userMessage } from './lib/clients.mjs';
import { newSession, settled, snapshotOf } from './lib/cut.mjs';
import { startGate } from './lib/gate.mjs';
import { Network } from './lib/net.mjs';
import { start } from './lib/spool.mjs';

let gate, spool;

before(async () => {
  gate = await startGate();
  spool = await start({ env: { SPOOL_TEST_GATE: gate.url } });
});
after(async () => {
  await spool?.stop();
  gate?.close();
});

/** A session after its first turn. */
async function first(client, name) {
  const session = newSession(`${name}-${client.name}`);
  const { chat, errors } = open(client, { url: spool.url, session });
  await chat.sendMessage(userMessage('user-1', 'hello'));
  assert.deepEqual(errors, []);
  return session;
}

/** The page of the README: it is built from the snapshot, whose position it keeps. */
async function page(client, session) {
  const errors = [];
  const api = `${spool.url}/api/chat/${session}`;
  const snapshot = await loadSnapshot({ api });
  const chat = new client.Chat({
    id: session,
    messages: snapshot?.messages ?? [],
    transport: new ResumableChatTransport({ api, resumeFromSequence: snapshot?.streamSequence }),
    onError: error => errors.push(error),
  });
  return { chat, errors };
}

async function whole(client, session, { chat, errors }) {
  await settled(spool.url, session);
  const snapshot = await snapshotOf(spool.url, session);
  assert.deepEqual(errors, []);
  assert.equal(chat.status, 'ready');
  const shown = answers(chat);
  assert.equal(shown.length, 2);
  assert.deepEqual(shown, answers(snapshot, client));
}

// The oldest client continues in its last message; this page's is the first turn's answer.
for (const client of [newest6, newest7]) {
  test(`a page of the turn before comes to a turn that has shown nothing: ${client.name}`, async () => {
    const session = await first(client, 'tab');
    const tab = await page(client, session);
    gate.allow(session, 0);
    const net = new Network();
    const other = open(client, { url: spool.url, session, fetch: net.fetch, messages: structuredClone(tab.chat.messages) });
    const sending = other.chat.sendMessage(userMessage('user-2', 'think'));
    await net.response(1);
    const done = tab.chat.resumeStream();
    gate.allow(session, Infinity);
    await Promise.all([sending, done]);
    assert.deepEqual(other.errors, []);
    await whole(client, session, tab);
  });
}

for (const client of all) {
  test(`a page comes back to the turn that it has begun: ${client.name}`, async () => {
    const session = await first(client, 'page');
    const snapshot = await snapshotOf(spool.url, session);
    gate.allow(session, 0);
    const net = new Network({ cutAfter: 0 });
    const headers = { 'X-Resume-From-Sequence': String(snapshot.streamSequence) };
    const reader = open(client, { url: spool.url, session, fetch: net.fetch, messages: snapshot.messages, headers });
    const sending = reader.chat.sendMessage(userMessage('user-2', 'think'));
    await net.wasCut;
    await sending;
    const done = reader.chat.resumeStream();
    await net.response(2);
    gate.allow(session, Infinity);
    await done;
    await whole(client, session, reader);
  });
}
