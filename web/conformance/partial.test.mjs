// Without content replay: a snapshot holds the message that is being written, as far as it
// is written, and the stream continues it.
import assert from 'node:assert/strict';
import { after, before, test } from './lib/test.mjs';
import { all, answers, oldest, open } from './lib/clients.mjs';
import { measure, newSession, none, pool, references, resuming, snapshotOf } from './lib/cut.mjs';
import { startGate } from './lib/gate.mjs';
import { Network } from './lib/net.mjs';
import { start } from './lib/spool.mjs';

const scenes = ['think', 'tools'];
const every = Number(process.env.SPOOL_EVERY ?? 4); // every so many appends; 1: all
let gate, spool;

before(async () => {
  gate = await startGate();
  spool = await start({ args: ['--no-content-replay'], env: { SPOOL_TEST_GATE: gate.url } });
});
after(async () => {
  await spool?.stop();
  gate?.close();
});

const isWords = part => part.type === 'text' || part.type === 'reasoning';

/** What a snapshot's parts and those that followed say together: a text in two halves, a call told twice. */
function together(half, rest) {
  const parts = structuredClone(half);
  const cut = parts.filter(p => isWords(p) && p.state === 'streaming');
  for (const part of rest) {
    const same = parts.findIndex(p => (part.toolCallId ? p.toolCallId === part.toolCallId : part.id && !isWords(part) && p.type === part.type && p.id === part.id));
    if (isWords(part) && cut.length > 0) {
      const first = cut.shift();
      Object.assign(first, part, { text: first.text + part.text });
    } else if (same >= 0) parts[same] = part;
    else parts.push(part);
  }
  return parts;
}

/** What is wrong with a page that was loaded after the nth append and has read the stream since. */
function wrongWith(client, { chat, errors }, half, whole) {
  if (errors.length > 0) return errors.map(String).join('; ');
  try {
    assert.equal(chat.status, 'ready');
    const shown = answers(chat);
    // The oldest client continues in the snapshot's message. The newest put what follows into one of its own, unless a call's input was cut.
    if (client === oldest) assert.equal(shown.length, 1);
    const parts = shown.flatMap(m => m.parts);
    assert.deepEqual(together(parts.slice(0, half.length), parts.slice(half.length)), whole);
  } catch (error) {
    return error.message.slice(0, 1500);
  }
}

for (const scene of scenes) {
  test(`${scene}: a page from half-written snapshots ends with the whole answer`, async () => {
    const { appends } = await measure(spool.url, gate, scene);
    const points = Array.from({ length: appends }, (_, n) => n + 1).filter(n => n % every === 0 || n === 1 || n === appends);
    const wrong = await pool(points, 6, async n => {
      const session = newSession(`${scene}-half-${n}`);
      gate.allow(session, 0);
      const refs = await references(spool.url, session, scene);
      gate.allow(session, n);
      if (n < appends) await gate.asked(session, n + 1);
      else await Promise.all(refs.map(r => r.done));
      const snapshot = await snapshotOf(spool.url, session);
      const pages = [];
      for (const client of all) {
        const headers = { 'X-Resume-From-Sequence': String(snapshot.streamSequence) };
        const messages = structuredClone(snapshot.messages);
        const net = new Network();
        const page = open(client, { url: spool.url, session, fetch: net.fetch, messages, headers });
        // One whose connection breaks, and that comes back with the id that it has seen.
        const broken = new Network({ cutAfter: n % 5 });
        const back = open(client, { url: spool.url, session, fetch: resuming(broken), messages: structuredClone(messages), headers });
        // Without the half-written message, and without a position, there is a replay for every client.
        const settled = messages.filter(m => !m.id.endsWith('-partial'));
        const other = new Network();
        const again = open(client, { url: spool.url, session, fetch: other.fetch, messages: settled.slice(0, 1) });
        pages.push({ client, page, back, again, done: Promise.all([page, back, again].map(r => r.chat.resumeStream())) });
        await Promise.all([net, broken, other].map(n => n.response(1)));
      }
      gate.allow(session, Infinity);
      await Promise.all([...refs, ...pages].map(r => r.done));
      const wrong = [];
      for (const { client, page, back, again } of pages) {
        const [whole] = answers(refs.find(r => r.client === client).chat);
        const half = answers(snapshot, client).flatMap(m => m.parts);
        const complaints = [page, back].map(r => wrongWith(client, r, half, whole.parts));
        try {
          assert.deepEqual(answers(again.chat), [whole]);
        } catch (error) {
          complaints.push(`replayed: ${error.message.slice(0, 1500)}`);
        }
        for (const what of complaints) if (what) wrong.push(`${session}: ${client.name}: ${what}`);
      }
      return wrong;
    });
    none(wrong.flat());
  });
}
