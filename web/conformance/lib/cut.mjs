// One session, cut at one point by many readers that all come back.
import { createResumingFetch, loadSnapshot } from '@spool-run/client';
import assert from 'node:assert/strict';
import { all, answers, newest6, newest7, oldest, open, userMessage } from './clients.mjs';
import { Network } from './net.mjs';

/** Ways back, and the clients for which each one can be right. */
export const ways = [
  ['snapshot', all], // the page is loaded again, from our snapshot
  ['history', all], // the same without saying where the snapshot stood; once the answer is in it the oldest client doubles it
  ['fetch', all], // the page stays, the resuming fetch goes on
  ['partial', [newest6, newest7]], // the page is loaded again with the half-written answer in its history
];

export const resuming = net => createResumingFetch({ fetch: net.fetch, minDelay: 1, maxDelay: 50 });

let made = 0;
export const newSession = name => `${name}-${process.pid}-${++made}`;

/** Waits until the turn has ended: the log's own stream does then. */
export async function settled(url, session) {
  const answer = await fetch(`${url}/stream/${encodeURIComponent(session)}`);
  assert.match(await answer.text(), /"type":"end"/);
}

/** Node may use a connection that a killed server has left; a browser would ask again by itself, and so does this. */
export async function snapshotOf(url, session) {
  for (let tries = 1; ; tries++) {
    try {
      return await loadSnapshot({ api: `${url}/api/chat/${encodeURIComponent(session)}` });
    } catch (error) {
      if (!(error instanceof TypeError) || tries === 5) throw error;
    }
  }
}

/** Sends the scene's message and reads the answer to its end, or to its cut. */
export function send(client, url, session, scene, net, fetch = net.fetch) {
  const reader = open(client, { url, session, fetch });
  reader.client = client;
  reader.net = net;
  reader.done = reader.chat.sendMessage(userMessage('user-1', scene));
  return reader;
}

/** Readers that never leave, one for each client: what all others must come to. The first one starts the turn. */
export async function references(url, session, scene) {
  const refs = [];
  for (const client of all) {
    const ref = send(client, url, session, scene, new Network());
    await ref.net.response(1);
    refs.push(ref);
  }
  return refs;
}

/** A page that is loaded again. */
export async function reload(client, url, session, way, before, net = new Network(), fetch = net.fetch) {
  const snapshot = await snapshotOf(url, session);
  assert.ok(snapshot, 'the session has no snapshot');
  let { messages } = snapshot;
  if (way === 'partial') messages = structuredClone(before);
  if (way === 'question') messages = messages.filter(m => m.role === 'user');
  const headers = way === 'snapshot' ? { 'X-Resume-From-Sequence': String(snapshot.streamSequence) } : undefined;
  const reader = open(client, { url, session, fetch, messages, headers });
  reader.client = client;
  reader.net = net;
  reader.done = reader.chat.resumeStream();
  return reader;
}

/** What differs between a reader that came back and the one that never left. */
export function difference(reader, ref) {
  if (reader.errors.length > 0) return `errors: ${reader.errors.map(String).join('; ')}`;
  try {
    assert.deepEqual(answers(reader.chat), answers(ref.chat));
    assert.equal(reader.chat.messages.length, ref.chat.messages.length, 'number of messages');
    assert.equal(reader.chat.status, ref.chat.status, 'status');
  } catch (error) {
    return error.message.slice(0, 1500);
  }
}

/**
 * How a scene's frames lie on its appends: run once, an append at a time.
 * @returns {Promise<{frames: number, upTo: number[], appends: number}>} upTo[k] is the last append that the first k frames need
 */
export async function measure(url, gate, scene) {
  const session = newSession(`${scene}-measure`);
  gate.allow(session, 0);
  const ref = send(newest6, url, session, scene, new Network());
  await ref.net.response(1);
  const heads = [];
  for (let n = 0; ; n++) {
    gate.allow(session, n);
    const over = await Promise.race([gate.asked(session, n + 1).then(() => false), ref.done.then(() => true)]);
    const info = await (await fetch(`${url}/stream/${session}/info`)).json();
    heads.push(info.latestSequence);
    if (over) break;
  }
  gate.allow(session, Infinity);
  await ref.done;
  assert.deepEqual(ref.errors, []);
  const { ids } = ref.net;
  const upTo = [0];
  for (let k = 1; k <= ids.length; k++) {
    const id = ids.slice(k - 1).find(id => id !== undefined);
    const at = heads.findIndex(head => head >= parseInt(id, 10));
    upTo.push(at < 0 ? heads.length - 1 : at);
  }
  return { frames: ids.length, upTo, appends: heads.length - 1 };
}

/**
 * Cuts readers of one session after k frames and brings them back, and returns
 * what went wrong. Each client has one page that is cut and then loaded again in
 * every way, and one that stays and reads through the resuming fetch.
 */
export async function cutAt({ url, gate, scene, k, upTo, appends }) {
  const session = newSession(`${scene}-${k}`);
  let letBack;
  const hold = new Promise(done => (letBack = done));
  if (gate) gate.allow(session, 0);
  const refs = await references(url, session, scene);
  const pages = [];
  const staying = [];
  for (const client of all) {
    const [page, stay] = [1, 2].map(() => new Network({ cutAfter: k, torn: !gate && k % 2 === 1, hold }));
    pages.push(send(client, url, session, scene, page));
    staying.push({ ...send(client, url, session, scene, stay, resuming(stay)), way: 'fetch' });
    await Promise.all([page.response(1), stay.response(1)]);
  }
  if (gate) gate.allow(session, upTo[k]);
  else await Promise.all(refs.map(r => r.done));
  await Promise.all([...pages, ...staying].map(r => r.net.wasCut));
  letBack();
  const live = gate !== undefined && upTo[k] < appends;
  const back = [...staying];
  for (const { client, chat, done, errors } of pages) {
    await done;
    for (const [way, clients] of ways) {
      if (way === 'fetch' || !clients.includes(client)) continue;
      if (way === 'history' && client === oldest && !live) continue;
      const again = await reload(client, url, session, way, chat.messages);
      again.errors.unshift(...errors);
      await again.net.response(1);
      back.push({ ...again, way });
    }
  }
  await Promise.all(staying.map(r => r.net.response(2)));
  if (gate) gate.allow(session, Infinity);
  await Promise.all([...back, ...refs].map(r => r.done));
  const snapshot = await snapshotOf(url, session);
  const wrong = [];
  for (const ref of refs) {
    if (ref.errors.length > 0) wrong.push(`${session}: ${ref.client.name} saw ${ref.errors.map(String)}`);
    try {
      assert.deepEqual(
        answers(ref.chat),
        answers(snapshot, ref.client),
      );
    } catch (error) {
      wrong.push(`${session}: the snapshot differs from what ${ref.client.name} streamed: ${error.message.slice(0, 1500)}`);
    }
  }
  for (const reader of back) {
    const what = difference(reader, refs.find(r => r.client === reader.client));
    if (what) wrong.push(`${session}: ${reader.client.name} by ${reader.way}, cut after ${k}: ${what}`);
  }
  return wrong;
}

/** Runs a job for each item, a few at a time. */
export async function pool(items, width, job) {
  const queue = [...items];
  const results = [];
  await Promise.all(
    Array.from({ length: width }, async () => {
      while (queue.length > 0) results.push(await job(queue.shift()));
    }),
  );
  return results;
}

export function none(wrong) {
  if (wrong.length > 0) assert.fail(`${wrong.length} went wrong, the first of them:\n${wrong.slice(0, 4).join('\n')}`);
}
