import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decide, interrupt, loadCheckpoints, loadInfo, RequestError, resume, sendWhileBusy, submitToolResult } from '../dist/index.js';

const api = '/api/chat/s';

/** A fetch that answers once, and what it was asked. */
function answering(status, body) {
  const asked = [];
  const fetch = async (url, init = {}) => {
    asked.push({ url: String(url), method: init.method ?? 'GET', headers: new Headers(init.headers), body: init.body && JSON.parse(init.body) });
    return new Response(JSON.stringify(body), { status });
  };
  return { fetch, asked };
}

test('commands post what they are told and return where the session stands', async () => {
  const settled = { sessionId: 's', status: 'paused', reason: 'interrupted', streamSequence: 7 };
  for (const [call, path, body] of [
    [o => interrupt(o, 'a pause'), 'interrupt', { reason: 'a pause' }],
    [o => decide(o, 'a/1', { approved: false, reason: 'no' }), 'approvals/a%2F1', { approved: false, reason: 'no' }],
    [o => submitToolResult(o, 'call', { output: { n: 1 } }), 'tools/call', { output: { n: 1 } }],
    [o => resume(o, { mode: 'continue' }), 'resume', { mode: 'continue' }],
    [o => resume(o, { mode: 'branch', checkpointId: 'cp', commandId: 'c' }), 'resume', { mode: 'branch', checkpointId: 'cp', commandId: 'c' }],
  ]) {
    const net = answering(200, settled);
    assert.deepEqual(await call({ api, fetch: net.fetch, headers: { 'x-mine': 'a' } }), settled);
    const [asked] = net.asked;
    assert.deepEqual([asked.url, asked.method, asked.body], [`${api}/${path}`, 'POST', body]);
    assert.equal(asked.headers.get('x-mine'), 'a');
    assert.equal(asked.headers.get('content-type'), 'application/json');
  }
});

test('checkpoints come newest first, in pages', async () => {
  const page = { items: [{ id: 'cp', runId: 'r', stepCount: 1, seq: 9, time: 1, stepIndex: 0 }], total: 3, hasMore: true };
  const net = answering(200, page);
  assert.deepEqual(await loadCheckpoints({ api, fetch: net.fetch }, { offset: 1, limit: 1 }), page);
  assert.equal(net.asked[0].url, `${api}/checkpoints?order=desc&offset=1&limit=1`);
});

test('a message to a busy session leaves its stream at once', async () => {
  const net = answering(200, {});
  let signal;
  const fetch = (url, init) => ((signal = init.signal), net.fetch(url, init));
  const message = { id: 'u', role: 'user', parts: [] };
  await sendWhileBusy({ api, fetch }, message, 'steer');
  assert.deepEqual([net.asked[0].url, net.asked[0].body], [api, { message, whenBusy: 'steer' }]);
  assert.equal(signal.aborted, true);
});

test('a session that is not there has no info', async () => {
  const info = { session: 's', status: 'active', latestSequence: 3, incarnation: 1, waiting: 0 };
  assert.deepEqual(await loadInfo({ api, fetch: answering(200, info).fetch }), info);
  assert.equal(await loadInfo({ api, fetch: answering(404, {}).fetch }), null);
});

test('what the server refuses is a RequestError with its code', async () => {
  for (const call of [o => interrupt(o), o => resume(o, { mode: 'retry' }), o => loadCheckpoints(o), loadInfo, o => decide(o, 'a', { approved: true }), o => sendWhileBusy(o, { id: 'u' }, 'queue')]) {
    const net = answering(409, { error: 'a run is active', code: 'busy' });
    await assert.rejects(call({ api, fetch: net.fetch }), e => e instanceof RequestError && e.status === 409 && e.code === 'busy' && /active/.test(e.message));
  }
});
