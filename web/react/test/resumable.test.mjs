import { act, eventually, message, renderHook, snapshot, snapshots } from './dom.mjs';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DataFeed, useCheckpointSnapshot, useResumableChat } from '../dist/index.js';

const snapshotUrl = '/api/chat/s/snapshot';
const texts = list => list.map(m => m.parts[0].text);

/** What `useChat` gives the hook. */
function chat() {
  const list = [];
  const it = {
    list,
    resumed: 0,
    setMessages: next => list.splice(0, list.length, ...(typeof next === 'function' ? next(list.slice()) : next)),
    resumeStream: async () => void it.resumed++,
  };
  return it;
}

test('useCheckpointSnapshot loads what it names, and forgets another session at once', async () => {
  const server = snapshots(snapshot([message('a', 'user', 'hi')]));
  const hook = await renderHook(p => useCheckpointSnapshot({ fetch: server.fetch, ...p }), { snapshotUrl });
  await eventually(() => assert.equal(hook.result().loading, false));
  assert.deepEqual(texts(hook.result().snapshot.messages), ['hi']);
  server.answer = () => new Promise(() => {});
  await hook.rerender({ snapshotUrl: '/api/chat/other/snapshot' });
  assert.deepEqual([hook.result().snapshot, hook.result().loading], [null, true]);
  server.answer = snapshot([message('a', 'user', 'then')]);
  await hook.rerender({ snapshotUrl, checkpointId: 'cp 1' });
  await eventually(() => assert.equal(hook.result().loading, false));
  assert.equal(server.asked.at(-1).url, `${snapshotUrl}?checkpoint=cp%201`);
  server.answer = null;
  await act(async () => void (await hook.result().refetch()));
  assert.deepEqual([hook.result().snapshot, hook.result().error], [null, null], 'no such session');
  server.answer = Response.json({ error: 'no', code: 'forbidden' }, { status: 403 });
  await act(async () => void (await hook.result().refetch()));
  assert.equal(hook.result().error.code, 'forbidden');
});

test('useResumableChat loads the session into the chat and follows its run', async () => {
  const c = chat();
  const checkpoint = { id: 'cp', stepCount: 3, streamSequence: 5 };
  const server = snapshots(snapshot([message('u', 'user', 'hi')], { status: 'active', existingMessageId: 'a', checkpointId: 'cp', checkpoint }));
  const loaded = [];
  const hook = await renderHook(() => useResumableChat({ snapshotUrl, fetch: server.fetch, ...c, onSnapshotLoaded: s => loaded.push(s.streamSequence) }));
  await eventually(() => assert.equal(hook.result().isLoading, false));
  assert.deepEqual(texts(c.list), ['hi']);
  assert.equal(c.resumed, 1);
  assert.deepEqual(loaded, [7]);
  const { snapshot: shown, error, resyncError, hasResynced, resyncCount } = hook.result();
  assert.deepEqual([shown.status, error, resyncError, hasResynced, resyncCount], ['active', null, null, false, 0]);
  assert.deepEqual(hook.result().checkpoint, checkpoint);
});

test('a session that ended is not followed, and a page that is not to be is not loaded', async () => {
  const c = chat();
  const server = snapshots(snapshot([message('u', 'user', 'hi')]));
  const hook = await renderHook(p => useResumableChat({ snapshotUrl, fetch: server.fetch, ...c, ...p }), { enabled: false });
  assert.deepEqual([server.asked.length, hook.result().isLoading], [0, false]);
  await hook.rerender({ enabled: true });
  await eventually(() => assert.deepEqual(texts(c.list), ['hi']));
  assert.equal(c.resumed, 0);
});

test('a paused session is followed as soon as it goes on', async () => {
  const c = chat();
  const server = snapshots(snapshot([], { status: 'paused' }));
  const hook = await renderHook(() => useResumableChat({ snapshotUrl, fetch: server.fetch, ...c, pollInterval: 5 }));
  await eventually(() => assert.equal(hook.result().snapshot?.status, 'paused'));
  server.answer = snapshot([message('u', 'user', 'go')], { status: 'active' });
  await eventually(() => assert.equal(hook.result().snapshot.status, 'active'));
  assert.deepEqual(texts(c.list), ['go']);
  const asked = server.asked.length;
  await act(async () => new Promise(done => setTimeout(done, 50)));
  assert.equal(server.asked.length, asked, 'it looks no more');
});

for (const [name, call] of [
  ['inside the options', (feed, o) => useResumableChat({ ...o, data: feed })],
  ['before the options', (feed, o) => useResumableChat(feed, o)],
]) {
  test(`resyncs are counted, shown and told: the source ${name}`, async () => {
    const c = chat();
    const feed = new DataFeed();
    const server = snapshots(snapshot([message('u', 'user', 'first')]));
    const told = [];
    const options = { snapshotUrl, fetch: server.fetch, ...c, onResync: e => told.push(e.data.reason), onError: e => told.push(e.code) };
    const hook = await renderHook(() => call(feed, options));
    await eventually(() => assert.deepEqual(texts(c.list), ['first']));
    server.answer = snapshot([message('u', 'user', 'second')]);
    await act(async () => feed.onData({ type: 'data-stream-resync', data: { reason: 'rollback' } }));
    await eventually(() => assert.deepEqual(texts(c.list), ['second']));
    assert.deepEqual([hook.result().hasResynced, hook.result().resyncCount, hook.result().resyncError], [true, 1, null]);
    assert.deepEqual(texts(hook.result().snapshot.messages), ['second']);
    server.answer = Response.json({ error: 'away', code: 'unavailable' }, { status: 503 });
    await act(async () => feed.onData({ type: 'data-stream-resync', data: { reason: 'branch' } }));
    await eventually(() => assert.equal(hook.result().resyncError?.code, 'unavailable'));
    assert.deepEqual([hook.result().resyncCount, hook.result().error], [2, null]);
    assert.deepEqual(told, ['rollback', 'branch', 'unavailable']);
  });
}
