// One kill -9 for every fifth cut point, with SPOOL_EVERY=1 for all: many sessions, each with readers cut at its
// own point, one dead server, one new one on the same store and port.
import assert from 'node:assert/strict';
import { after, before, test } from './lib/test.mjs';
import { all, answers, oldest } from './lib/clients.mjs';
import { difference, measure, newSession, none, pool, references, reload, resuming, send, settled, snapshotOf, ways } from './lib/cut.mjs';
import { startGate } from './lib/gate.mjs';
import { Network } from './lib/net.mjs';
import { freePort, leaveLeases, start, tempDir } from './lib/spool.mjs';

const scenes = ['think', 'tools'];
const rounds = Number(process.env.SPOOL_ROUNDS ?? 1);
const every = Number(process.env.SPOOL_EVERY ?? 5); // every so many cut points; 1: all
let gate;

before(async () => {
  gate = await startGate();
});
after(() => gate?.close());

for (let round = 1; round <= rounds; round++) {
  const suffix = rounds > 1 ? `, round ${round}` : '';
  test(`kill -9 between every cut point and the return${suffix}`, killAll(['--no-recover'], checkRunning));
  test(`kill -9 in mid-answer, and the answer goes on${suffix}`, killAll(['--model', 'scripted'], checkResumed));
  test(`kill -9 in mid-answer, and the answer is made again${suffix}`, killAll([], checkRecovered));
}

/** A test that kills one server for all cut points. */
function killAll(flags, check) {
  return async t => {
    const server = {
      port: await freePort(),
      store: `${tempDir()}/spool.db`,
      args: flags,
      env: { SPOOL_TEST_GATE: gate.url },
    };
    let spool = await start(server);
    const { url } = spool;
    let letBack;
    const hold = new Promise(done => (letBack = done));
    const points = [];
    for (const scene of scenes) {
      const shape = await measure(url, gate, scene);
      for (let k = 0; k < shape.frames; k++) {
        if (k % every === 0 || k === shape.frames - 1) points.push({ scene, k, ...shape });
      }
    }

    const finished = await pool(points, 8, async point => {
      const session = newSession(`${point.scene}-over-${point.k}`);
      const refs = await references(url, session, point.scene);
      const readers = [];
      for (const client of all) {
        const net = new Network({ cutAfter: point.k, hold });
        readers.push(send(client, url, session, point.scene, net, resuming(net)));
        await net.response(1);
      }
      await Promise.all([...refs.map(r => r.done), ...readers.map(r => r.net.wasCut)]);
      return { ...point, session, refs, readers };
    });

    const running = await pool(points, 8, async point => {
      const session = newSession(`${point.scene}-open-${point.k}`);
      gate.allow(session, point.upTo[point.k]);
      const readers = [];
      for (const client of all) {
        const net = new Network({ hold });
        readers.push(send(client, url, session, point.scene, net, resuming(net)));
        await net.response(1);
      }
      await Promise.all(readers.map(r => r.net.received(point.k)));
      return { ...point, session, readers };
    });

    await spool.kill9();
    leaveLeases(server.store, 10_000);
    const shown = running.map(({ readers }) => readers.map(r => words(r.chat)));
    for (const { session } of running) gate.allow(session, Infinity);
    spool = await start(server);
    try {
      letBack();
      const wrong = [];

      for (const bad of await pool(finished, 8, s => checkFinished(url, s))) wrong.push(...bad);
      const checked = await pool([...running.entries()], 8, ([i, s]) => {
        const ref = finished.find(f => f.scene === s.scene).refs[0];
        return check(url, s, shown[i], words(ref.chat));
      });
      for (const bad of checked) wrong.push(...bad);
      t.diagnostic(`${points.length} cut points, ${running.length} runs killed in mid-answer`);
      none(wrong);
    } finally {
      await spool.stop();
    }
  };
}

/** A run that was over: every way back gives what was there before the kill. */
async function checkFinished(url, { session, k, refs, readers }) {
  const wrong = [];
  for (const ref of refs) {
    const resumed = readers.find(r => r.client === ref.client);
    await resumed.done;
    const what = difference(resumed, ref);
    if (what) wrong.push(`${session}: ${ref.client.name} by fetch, cut after ${k}: ${what}`);
    for (const way of ['snapshot', 'question']) {
      const again = await reload(ref.client, url, session, way, []);
      await again.done;
      const what = difference(again, ref);
      if (what) wrong.push(`${session}: ${ref.client.name} by ${way} after the kill: ${what}`);
    }
  }
  return wrong;
}

/** A run that died: every client, at once and after every reload, shows what the fold of the log says. */
async function checkRunning(url, { session, k, upTo, appends, readers }, shown) {
  const wrong = [];
  const complain = (who, what) => wrong.push(`${session}, killed after ${k}: ${who}: ${what}`);
  // These come in while the dead owner's lease may still run.
  const early = [];
  for (const client of all) early.push(await reload(client, url, session, 'snapshot', []));
  await Promise.all([...readers, ...early].map(r => r.done));

  const snapshot = await snapshotOf(url, session);
  // Before its first record a run is not lost: the message is still due, and runs now. After its last it is over.
  const lost = upTo[k] > 0 && upTo[k] < appends;
  const want = lost ? 'failed' : 'ended';
  if (snapshot.status !== want) complain('snapshot', `status ${snapshot.status}, want ${want}`);
  const fold = answers(snapshot);
  if (fold.length !== 1) complain('snapshot', `${fold.length} answers`);
  const parts = fold[0]?.parts ?? [];
  if (parts.some(p => p.state === 'streaming' || p.state === 'input-streaming')) complain('snapshot', 'an open part is left');
  if (lost !== parts.some(p => p.type === 'data-error')) complain('snapshot', lost ? 'no error is shown' : 'an error is shown');

  const late = [];
  for (const [way, clients] of ways) {
    if (way === 'fetch') continue;
    for (const client of clients) {
      const reader = readers.find(r => r.client === client);
      if (client === oldest && way !== 'snapshot') continue; // it doubles what it has
      const again = await reload(client, url, session, way, reader.chat.messages);
      again.way = way;
      await again.done;
      late.push(again);
    }
  }
  for (const reader of [...readers, ...early, ...late]) {
    const who = `${reader.client.name} by ${reader.way ?? (early.includes(reader) ? 'an early reload' : 'fetch')}`;
    // What the message says of its failure is the one error that may be seen.
    const said = parts.find(p => p.type === 'data-error')?.data.error;
    const schema = reader.errors.filter(e => e.message !== said);
    if (schema.length > 0) complain(who, schema.map(String).join('; '));
    try {
      assert.deepEqual(answers(reader.chat), answers(snapshot, reader.client));
    } catch (error) {
      complain(who, error.message.slice(0, 1500));
    }
  }
  const final = words({ messages: snapshot.messages });
  for (const text of shown) if (!final.startsWith(text)) complain('what was shown', `${JSON.stringify(text)} is not in ${JSON.stringify(final)}`);
  return wrong;
}

/** A run that died and went on with the same answer: no reader is told anything, and nothing that was shown is taken back. */
async function checkResumed(url, session, shown, undisturbed) {
  const wrong = await checkRecovered(url, session, shown, undisturbed);
  const complain = (who, what) => wrong.push(`${session.session}, killed after ${session.k}: ${who}: ${what}`);
  for (const { client, errors } of session.readers) if (errors.length > 0) complain(client.name, errors.map(String).join('; '));
  for (const text of shown) if (!undisturbed.startsWith(text)) complain('what was shown', `${JSON.stringify(text)} is not in ${JSON.stringify(undisturbed)}`);
  const log = await (await fetch(`${url}/stream/${encodeURIComponent(session.session)}`)).text();
  if (/"type":"(step_discarded|stream_resync)"/.test(log)) complain('the log', 'something was taken back');
  return wrong;
}

/** A run that died and went on: a client that was told that what it shows is retracted loads the page again. */
async function checkRecovered(url, { session, k, readers }, shown, undisturbed) {
  const wrong = [];
  const complain = (who, what) => wrong.push(`${session}, killed after ${k}: ${who}: ${what}`);
  const early = []; // while nobody owns the run
  for (const client of all) early.push(await reload(client, url, session, 'snapshot', []));
  await Promise.all([...readers, ...early].map(r => r.done));
  await settled(url, session); // a retraction may have sent all of them away

  const snapshot = await snapshotOf(url, session);
  if (snapshot.status !== 'ended') complain('snapshot', `status ${snapshot.status}`);
  const fold = answers(snapshot);
  if (fold.length !== 1) complain('snapshot', `${fold.length} answers`);
  const parts = fold[0]?.parts ?? [];
  if (parts.some(p => p.state === 'streaming' || p.state === 'input-streaming' || p.state === 'output-error' || p.type === 'data-error')) {
    complain('snapshot', 'something is left open, or has failed');
  }
  const final = words({ messages: snapshot.messages });
  if (final !== undisturbed) complain('snapshot', `${JSON.stringify(final)}, undisturbed ${JSON.stringify(undisturbed)}`);
  for (const reader of [...readers, ...early]) {
    let who = `${reader.client.name} by ${early.includes(reader) ? 'an early reload' : 'fetch'}`;
    let { chat } = reader;
    if (chat.status === 'error') {
      // A plain fetch only loses its connection, one that resumes is told why.
      const other = reader.errors.filter(e => early.includes(reader) || e.code !== 'cursor_retracted');
      if (other.length > 0) complain(who, other.map(String).join('; '));
      who += ', loaded again';
      const again = await reload(reader.client, url, session, 'snapshot', []);
      await again.done;
      if (again.errors.length > 0) complain(who, again.errors.map(String).join('; '));
      chat = again.chat;
    } else if (reader.errors.length > 0) complain(who, reader.errors.map(String).join('; '));
    try {
      assert.deepEqual(answers(chat), answers(snapshot, reader.client));
    } catch (error) {
      complain(who, error.message.slice(0, 1500));
    }
  }
  return wrong;
}

/** Everything an answer says, in order. */
function words(chat) {
  return chat.messages
    .filter(m => m.role === 'assistant')
    .flatMap(m => m.parts)
    .map(p => (p.type === 'text' || p.type === 'reasoning' ? p.text : ''))
    .join('');
}
