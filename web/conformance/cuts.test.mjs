// Every cut point of a turn, with the real clients, over real HTTP.
import assert from 'node:assert/strict';
import { after, before, test } from './lib/test.mjs';
import { all, answers, oldest, open } from './lib/clients.mjs';
import { cutAt, difference, measure, newSession, none, pool, references, reload, resuming, send } from './lib/cut.mjs';
import { startGate } from './lib/gate.mjs';
import { Network } from './lib/net.mjs';
import { start } from './lib/spool.mjs';

const scenes = ['think', 'tools'];
let gate, gated, plain;
const shape = {};

before(async () => {
  gate = await startGate();
  [gated, plain] = await Promise.all([start({ env: { SPOOL_TEST_GATE: gate.url } }), start()]);
  for (const scene of scenes) shape[scene] = await measure(gated.url, gate, scene);
});

after(async () => {
  await Promise.all([gated?.stop(), plain?.stop()]);
  gate?.close();
});

for (const scene of scenes) {
  test(`${scene}: every cut point, what follows is written after the reader is back`, async t => {
    const { frames } = shape[scene];
    t.diagnostic(`${frames} frames`);
    const points = Array.from({ length: frames }, (_, k) => k);
    const wrong = await pool(points, 6, k => cutAt({ url: gated.url, gate, scene, k, ...shape[scene] }));
    none(wrong.flat());
  });

  test(`${scene}: every cut point, the run is over before the reader is back`, async () => {
    const points = Array.from({ length: shape[scene].frames }, (_, k) => k);
    const wrong = await pool(points, 6, k => cutAt({ url: plain.url, scene, k }));
    none(wrong.flat());
  });

  test(`${scene}: every cut point of a replay`, async () => {
    const wrong = [];
    const { frames, upTo } = shape[scene];
    // A replay of the whole turn, and one of each third of it with the rest still to come.
    for (const k of [Math.floor(frames / 3), Math.floor((2 * frames) / 3), frames]) {
      const session = newSession(`${scene}-replay-${k}`);
      const live = k < frames;
      gate.allow(session, live ? upTo[k] : Infinity);
      const refs = await references(gated.url, session, scene);
      if (live) await Promise.all(refs.map(r => r.net.received(k)));
      else await Promise.all(refs.map(r => r.done));
      // How many frames has the replay, as far as it goes without what is still to come?
      const probe = await planLength(gated.url, session);
      const readers = [];
      for (let j = 0; j < probe; j++) {
        for (const client of all) {
          const net = new Network({ cutAfter: j, torn: false });
          const reader = await reload(client, gated.url, session, 'question', [], net, resuming(net));
          readers.push({ ...reader, j });
        }
      }
      await Promise.all(readers.map(r => r.net.response(2)));
      gate.allow(session, Infinity);
      await Promise.all([...refs, ...readers].map(r => r.done));
      for (const reader of readers) {
        const what = difference(reader, refs.find(r => r.client === reader.client));
        if (what) wrong.push(`${session}: ${reader.client.name}, replay cut after ${reader.j}: ${what}`);
      }
    }
    none(wrong);
  });
}

/** Frames that an attach gets at once: those whose ids say that they are the plan's, and the last one of it. */
async function planLength(url, session) {
  const abort = new AbortController();
  const response = await fetch(`${url}/api/chat/${session}/stream`, { signal: abort.signal });
  assert.equal(response.status, 200);
  let text = '';
  let n = 0;
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    const events = text.split('\n\n');
    text = events.pop();
    for (const event of events) {
      if (!/^data:/m.test(event)) continue;
      n++;
      // The plan's last frame carries the plain position.
      if (/^id: ?\d+(\.\d+)?$/m.test(event)) {
        abort.abort();
        return n;
      }
    }
  }
  return n;
}

test('the oldest client doubles a replay over a half-written answer', async () => {
  const session = newSession('doubles');
  const { frames, upTo } = shape.think;
  const k = Math.floor(frames / 2);
  gate.allow(session, upTo[k]);
  const ref = send(oldest, gated.url, session, 'think', new Network());
  await ref.net.response(1);
  const cut = send(oldest, gated.url, session, 'think', new Network({ cutAfter: k }));
  await cut.done;
  const again = await reload(oldest, gated.url, session, 'partial', cut.chat.messages);
  await again.net.response(1);
  gate.allow(session, Infinity);
  await Promise.all([ref.done, again.done]);
  const [whole] = answers(ref.chat);
  const [doubled] = answers(again.chat);
  const reasoning = m => m.parts.filter(p => p.type === 'reasoning').length;
  assert.equal(reasoning(whole), 1);
  assert.equal(reasoning(doubled), 2, 'this client has learnt to replay: let it join the others');
});

test('automatic sending does not go on after a settled turn', async () => {
  for (const client of all) {
    const session = newSession(`auto-${client.name}`);
    const net = new Network();
    const { chat, errors } = open(client, {
      url: plain.url,
      session,
      fetch: (input, init) => {
        if (net.requests.length >= 2) throw new Error('it goes on sending');
        return net.fetch(input, init);
      },
      init: { sendAutomaticallyWhen: client.sdk.lastAssistantMessageIsCompleteWithToolCalls },
    });
    await chat.sendMessage({ text: 'tools' });
    assert.deepEqual(errors, []);
    assert.equal(net.requests.length, 1, client.name);
    // And a client that sends all the same is refused, at once.
    await chat.sendMessage();
    assert.equal(net.requests.length, 2);
    assert.equal(net.answered[1].status, 409);
    assert.match(String(errors[0]?.message), /No pending call of this session matches these answers/);
  }
});

test('the second turn holds nothing of the first', async () => {
  for (const client of all) {
    const session = newSession(`turns-${client.name}`);
    const net = new Network();
    const { chat, errors } = open(client, { url: plain.url, session, fetch: net.fetch });
    await chat.sendMessage({ text: 'tools' });
    await chat.sendMessage({ text: 'hello' });
    const [first, second] = answers(chat);
    assert.notEqual(first.id, second.id);
    assert.ok(!second.parts.some(p => p.type.includes('tool')));
    const again = await reload(client, plain.url, session, 'question', []);
    await again.done;
    assert.deepEqual(answers(again.chat), [second]);
    assert.deepEqual([...errors, ...again.errors], []);
  }
});

test('an edit and a regenerate take the place of what was', async () => {
  for (const client of all) {
    const session = newSession(`edit-${client.name}`);
    const { chat, errors } = open(client, { url: plain.url, session, fetch: new Network().fetch });
    await chat.sendMessage({ text: 'hello' });
    const user = chat.messages[0].id;
    await chat.sendMessage({ text: 'think', messageId: user });
    assert.equal(chat.messages.length, 2);
    const edited = answers(chat)[0];
    assert.ok(edited.parts.some(p => p.type === 'reasoning'));
    await chat.regenerate();
    assert.deepEqual(errors, []);
    assert.equal(chat.messages.length, 2);
    const again = answers(chat)[0];
    assert.deepEqual(again.parts, edited.parts);
    assert.notEqual(again.id, edited.id);
    const back = await reload(client, plain.url, session, 'snapshot', []);
    await back.done;
    assert.deepEqual(answers(back.chat), [again]);
    assert.deepEqual(back.chat.messages.map(m => m.role), ['user', 'assistant']);
  }
});

