import { act, eventually, message, renderHook, snapshot, snapshots } from './dom.mjs';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ResyncError } from '@spool-run/client';
import { DataFeed, mergeSnapshot, useAutoResync, useResyncState, useStreamResync } from '../dist/index.js';

const snapshotUrl = '/api/chat/s/snapshot';
const part = (reason, more) => ({ type: 'data-stream-resync', data: { reason, ...more } });
const setter = list => next => list.splice(0, list.length, ...(typeof next === 'function' ? next(list.slice()) : next));

test('each resync of a feed is told once, also under StrictMode, and with the latest callback', async () => {
  const feed = new DataFeed();
  const told = [];
  const hook = await renderHook(({ name }) => useStreamResync(feed, { onResync: e => told.push([name, e.data.reason, e.data.step]) }), { name: 'a' });
  feed.onData(part('rollback', { step: 2 }));
  feed.onData({ type: 'data-other', data: { reason: 'no' } });
  await hook.rerender({ name: 'b' });
  feed.onData(part('crash_recovery'));
  feed.onError(new Error('another'));
  feed.onError(new ResyncError('cursor_trimmed'));
  assert.deepEqual(told, [['a', 'rollback', 2], ['b', 'crash_recovery', undefined], ['b', 'cursor_trimmed', undefined]]);
  await hook.unmount();
  feed.onData(part('rollback'));
  assert.equal(told.length, 3);
});

test('a list that grows, as earlier chats had it, tells each of its parts once', async () => {
  const told = [];
  const first = part('rollback');
  const hook = await renderHook(({ data }) => useStreamResync(data, { onResync: e => told.push(e) }), { data: undefined });
  await hook.rerender({ data: [first] });
  await hook.rerender({ data: [first, 'text', null, { type: 'stream_resync', checkpointId: 'c', reason: 'branch' }] });
  await hook.rerender({ data: [first] });
  assert.deepEqual(told.map(e => [e.type, e.data.reason, e.data.checkpointId]), [['stream_resync', 'rollback', undefined], ['stream_resync', 'branch', 'c']]);
});

test('useResyncState says so until the stream goes on', async () => {
  const feed = new DataFeed();
  const hook = await renderHook(() => useResyncState(feed));
  assert.deepEqual(hook.result(), { isResyncing: false, lastResyncEvent: null });
  await act(async () => feed.onData(part('rollback')));
  assert.deepEqual([hook.result().isResyncing, hook.result().lastResyncEvent.data.reason], [true, 'rollback']);
  await act(async () => feed.onData({ type: 'data-step', data: 1 }));
  assert.deepEqual([hook.result().isResyncing, hook.result().lastResyncEvent.data.reason], [false, 'rollback']);
});

test('useAutoResync shows the snapshot; of two events the later one counts', async () => {
  const feed = new DataFeed();
  const list = [message('a', 'assistant', 'old')];
  const answers = [];
  const server = snapshots(() => new Promise(done => answers.push(done)));
  const told = [];
  const options = { snapshotUrl, fetch: server.fetch, headers: { 'x-mine': 'a' }, setMessages: setter(list), onResync: e => told.push(e.data.reason), onError: e => told.push(e) };
  await renderHook(() => useAutoResync(feed, options));
  feed.onData(part('rollback'));
  feed.onData(part('crash_recovery'));
  await eventually(() => assert.equal(answers.length, 2));
  answers[1](snapshot([message('a', 'assistant', 'second')]));
  await eventually(() => assert.equal(list[0].parts[0].text, 'second'));
  answers[0](snapshot([message('a', 'assistant', 'first')]));
  await act(async () => {});
  assert.equal(list[0].parts[0].text, 'second');
  assert.deepEqual(told, ['rollback', 'crash_recovery']);
  assert.deepEqual(server.asked.map(a => [a.url, a.headers.get('x-mine')]), [[snapshotUrl, 'a'], [snapshotUrl, 'a']]);
});

test('a resync that fails is told, and the messages stay', async () => {
  const feed = new DataFeed();
  const list = [message('a', 'assistant', 'old')];
  const errors = [];
  const server = snapshots(Response.json({ error: 'away', code: 'unavailable' }, { status: 503 }));
  await renderHook(() => useAutoResync(feed, { snapshotUrl, fetch: server.fetch, setMessages: setter(list), onError: e => errors.push(e.code) }));
  feed.onData(part('rollback'));
  await eventually(() => assert.deepEqual(errors, ['unavailable']));
  assert.equal(list[0].parts[0].text, 'old');
});

test('the answer that is being written stays where a snapshot leaves it out', () => {
  const [user, answer] = [message('u', 'user', 'hi'), message('a', 'assistant', 'half')];
  const live = snapshot([user], { status: 'active', existingMessageId: 'a' });
  assert.deepEqual(mergeSnapshot([user, answer], live), [user, answer]);
  assert.deepEqual(mergeSnapshot([user], live), [user]);
  assert.deepEqual(mergeSnapshot([user, answer], { ...live, status: 'ended' }), [user]);
  assert.deepEqual(mergeSnapshot([user, message('b', 'assistant', 'another')], live), [user]);
});
