// A user who decides while another call of the same step still runs, with the
// real clients: nobody is refused, nothing runs twice, and nobody posts for ever.
import assert from 'node:assert/strict';
import { after, before, test } from './lib/test.mjs';
import { answers, newest6, newest7, open, plain, userMessage } from './lib/clients.mjs';
import { newSession, snapshotOf } from './lib/cut.mjs';
import { startGate } from './lib/gate.mjs';
import { start } from './lib/spool.mjs';
import { eventually } from './lib/wait.mjs';

let gate, spool;

before(async () => {
  gate = await startGate();
  spool = await start({ env: { SPOOL_TEST_GATE: gate.url } });
});
after(async () => {
  await spool?.stop();
  gate?.close();
});

const call = chat => answers(chat)[0]?.parts.find(p => p.toolName === 'book_trip' || p.type === 'tool-book_trip');

/** A chat whose run has asked, and is held at the end of its other call. */
async function asked(client, way, init) {
  const session = newSession(`meanwhile-${way}-${client.name}`);
  let second;
  const posts = [];
  const taken = new Promise(done => (second = done)); // the second POST has its answer's headers
  const counting = async (url, options) => {
    if (options?.method !== 'POST') return fetch(url, options);
    posts.push(options.body);
    assert.ok(posts.length < 10, 'it posts for ever');
    const n = posts.length;
    const response = await fetch(url, options);
    if (n === 2) second(response.status);
    return response;
  };
  const held = gate.holdAt(session, 'tool_end');
  const { chat, errors } = open(client, { url: spool.url, session, fetch: counting, init });
  const first = chat.sendMessage(userMessage('user-1', 'meanwhile'));
  await held;
  await eventually(() => assert.equal(call(chat)?.state, 'approval-requested'));
  assert.equal(chat.status, 'streaming');
  return { session, chat, errors, posts, taken, first, approval: call(chat).approval.id };
}

/** One run, unless it paused; what was shown is what the log holds. */
async function over({ session, chat, errors }) {
  assert.deepEqual(errors, []);
  const snapshot = await snapshotOf(spool.url, session);
  assert.equal(snapshot.status, 'ended');
  // A client of ai 6 knows what it was asked and not, unless it did so itself, what was said.
  const shown = list => JSON.parse(JSON.stringify(answers(list, chat.client)), (k, v) => (k === 'approval' ? { id: v.id } : v));
  assert.deepEqual(shown(chat), shown(snapshot));
  assert.match(JSON.stringify(plain(chat.messages)), /SP-\d+.*It is booked/);
}

for (const client of [newest6, newest7]) {
  const sendAutomaticallyWhen = client.sdk.lastAssistantMessageIsCompleteWithApprovalResponses;

  test(`a decision by the route while another call runs: ${client.name}`, async () => {
    const at = await asked(client, 'route', { sendAutomaticallyWhen });
    for (const [approved, status] of [[true, 200], [true, 200], [false, 409]]) {
      const response = await fetch(`${spool.url}/api/chat/${at.session}/approvals/${at.approval}`, {
        method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ approved }),
      });
      assert.equal(response.status, status);
    }
    gate.allow(at.session, Infinity);
    await at.first;
    assert.equal(at.posts.length, 1);
    await over(at);
  });

  test(`a decision in the page while another call runs, and the client sends by itself: ${client.name}`, async () => {
    const at = await asked(client, 'click', { sendAutomaticallyWhen });
    await at.chat.addToolApprovalResponse({ id: at.approval, approved: true });
    gate.allow(at.session, Infinity);
    await at.first;
    assert.equal(at.posts.length, 2); // it waited for its stream, and the run for it
    await over(at);
  });

  test(`a decision that is posted while the stream is live: ${client.name}`, async () => {
    const at = await asked(client, 'post', { sendAutomaticallyWhen });
    await at.chat.addToolApprovalResponse({ id: at.approval, approved: true });
    const second = at.chat.sendMessage();
    assert.equal(await at.taken, 200);
    gate.allow(at.session, Infinity);
    await Promise.all([at.first, second]);
    assert.ok(at.posts.length <= 3, `${at.posts.length} posts`);
    await over(at);
  });
}
