import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createResumingFetch, isConnectionLost, isResyncError, joinDeltas } from '../dist/index.js';

const event = (id, data) => `${id === undefined ? '' : `id: ${id}\n`}data: ${data}\n\n`;

/** A server in a few lines: each request takes the next answer; a body that ends in an Error breaks there. */
function network(...answers) {
  const requests = [];
  const fetch = async (url, init = {}) => {
    requests.push({ url: String(url), method: init.method ?? 'GET', headers: new Headers(init.headers), body: init.body });
    const answer = answers.shift();
    if (answer === undefined) throw new Error('unexpected request');
    if (answer instanceof Error) throw answer;
    if (!Array.isArray(answer)) return new Response(answer.body ?? null, answer);
    const pieces = [...answer];
    const body = new ReadableStream(
      {
        pull(controller) {
          const piece = pieces.shift();
          if (piece === undefined) controller.close();
          else if (piece instanceof Error) controller.error(piece);
          else controller.enqueue(new TextEncoder().encode(piece));
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  };
  return { fetch, requests };
}

const lost = new TypeError('network error');
const quick = { minDelay: 1, maxDelay: 2 };
const post = { method: 'POST', headers: { 'content-type': 'application/json', 'x-mine': 'a' }, body: JSON.stringify({ trigger: 'submit-message' }) };
const done = event(9, '[DONE]');

test('a broken body is continued from the last id, as one stream', async () => {
  const net = network([event(1, 'a'), event(2, 'b'), lost], [event(3, 'c')], [done]);
  const states = [];
  const response = await createResumingFetch({ ...quick, fetch: net.fetch, onState: s => states.push(s) })('/api/chat/s', post);
  assert.equal(await response.text(), event(1, 'a') + event(2, 'b') + event(3, 'c') + done);
  assert.deepEqual(
    net.requests.map(r => [r.method, r.url, r.headers.get('last-event-id'), r.headers.get('x-mine'), r.headers.get('content-type')]),
    [
      ['POST', '/api/chat/s', null, 'a', 'application/json'],
      ['GET', '/api/chat/s/stream', '2', 'a', null],
      ['GET', '/api/chat/s/stream', '3', 'a', null],
    ],
  );
  assert.deepEqual(states, ['live', 'reconnecting', 'live', 'reconnecting', 'live']);
});

test('events without an id wait for the one that has it', async () => {
  const net = network([event(1, 'a'), event(undefined, 'half'), lost], [event(undefined, 'half') + event(2, 'whole') + done]);
  const response = await createResumingFetch({ ...quick, fetch: net.fetch })('/s/stream');
  assert.equal(await response.text(), event(1, 'a') + event(undefined, 'half') + event(2, 'whole') + done);
});

test('a cut in the middle of an event, a character or a line end changes nothing', async () => {
  const whole = event(1, 'é🧵') + event('p1-7', '{"x":1}') + done;
  const bytes = new TextEncoder().encode(whole);
  for (let at = 0; at <= bytes.length; at++) {
    const net = network([], []);
    const parts = [bytes.slice(0, at), bytes.slice(at)];
    const fetch = async () =>
      new Response(
        new ReadableStream({
          pull(c) {
            const p = parts.shift();
            if (p) c.enqueue(p);
            else c.close();
          },
        }),
        { headers: { 'content-type': 'text/event-stream' } },
      );
    const response = await createResumingFetch({ ...quick, fetch })('/s/stream');
    assert.equal(await response.text(), whole);
    assert.equal(net.requests.length, 0);
  }
});

test('a cursor that cannot be served is a resync', async () => {
  for (const [answer, code] of [
    [{ status: 409, body: JSON.stringify({ code: 'cursor_trimmed', message: 'gone' }) }, 'cursor_trimmed'],
    [{ status: 204 }, 'gone'],
    [{ status: 404, body: 'no' }, 'http_404'],
  ]) {
    const net = network([event(1, 'a'), lost], answer);
    const response = await createResumingFetch({ ...quick, fetch: net.fetch })('/s/stream');
    await assert.rejects(response.text(), error => isResyncError(error) && error.code === code);
  }
});

test('servers that are down are asked again', async () => {
  const net = network([event(1, 'a'), lost], { status: 502, body: 'x' }, new TypeError('fetch failed'), { status: 503 }, [done]);
  const response = await createResumingFetch({ ...quick, fetch: net.fetch })('/s/stream');
  assert.equal(await response.text(), event(1, 'a') + done);
  assert.equal(net.requests.length, 5);
});

test('the first pause is a quarter of a second, each is half as long again, and none exceeds ten seconds', async t => {
  for (const random of [0, 1]) {
    const pauses = [];
    const mocks = [
      t.mock.method(Math, 'random', () => random),
      t.mock.method(globalThis, 'setTimeout', (run, ms) => void (pauses.push(ms), queueMicrotask(run))),
    ];
    const fetch = () => Promise.reject(new TypeError('fetch failed'));
    await assert.rejects(createResumingFetch({ fetch })('/s/stream'), isConnectionLost);
    for (const mock of mocks) mock.mock.restore();
    assert.deepEqual(pauses, Array.from({ length: 20 }, (_, i) => Math.min(10_000, 250 * 1.5 ** i) * (0.5 + random / 2)));
  }
});

test('after so many attempts in a row the stream fails, and says where it stood', async () => {
  const refused = new TypeError('fetch failed');
  // Whatever comes, a heartbeat too, begins the count again.
  const net = network([event(1, 'a'), lost], refused, { status: 503 }, [': ping\n\n', lost], refused, { status: 502 }, refused);
  const states = [];
  const response = await createResumingFetch({ ...quick, maxRetries: 3, fetch: net.fetch, onState: s => states.push(s) })('/s/stream');
  const reader = response.body.getReader();
  assert.equal(new TextDecoder().decode((await reader.read()).value), event(1, 'a'));
  await assert.rejects(reader.read(), error => {
    assert.ok(isConnectionLost(error) && !isResyncError(error));
    assert.deepEqual([error.code, error.attempts, error.lastEventId, error.cause], ['connection_lost', 3, '1', refused]);
    return true;
  });
  assert.equal(net.requests.length, 7);
  assert.equal(states.at(-1), 'lost');
});

test('the first request too is given up, and the same message may be sent by hand', async () => {
  const net = network(...Array.from({ length: 3 }, () => new TypeError('fetch failed')), [event(1, 'a') + done]);
  const again = createResumingFetch({ ...quick, maxRetries: 2, fetch: net.fetch });
  await assert.rejects(again('/api/chat/s', post), error => isConnectionLost(error) && error.lastEventId === undefined);
  assert.equal(net.requests.length, 3);
  assert.equal(await (await again('/api/chat/s', post)).text(), event(1, 'a') + done);
});

test('attempts are counted from none when the network or the user is back', async () => {
  const page = Object.assign(new EventTarget(), { visibilityState: 'hidden' });
  const browser = new EventTarget();
  const add = browser.addEventListener.bind(browser);
  Object.assign(globalThis, { document: page, addEventListener: add, removeEventListener: browser.removeEventListener.bind(browser) });
  try {
    const back = [
      [() => browser.dispatchEvent(new Event('online')), true],
      [() => page.dispatchEvent(new Event('resume')), true],
      [() => { page.visibilityState = 'visible'; page.dispatchEvent(new Event('visibilitychange')); }, true],
      [() => { page.visibilityState = 'hidden'; page.dispatchEvent(new Event('visibilitychange')); }, false],
    ];
    for (const [happens, counts] of back) {
      let requests = 0;
      const fetch = async () => {
        if (++requests === 3) happens();
        throw new TypeError('fetch failed');
      };
      await assert.rejects(createResumingFetch({ ...quick, maxRetries: 4, fetch })('/s/stream'), isConnectionLost);
      assert.equal(requests, counts ? 3 + 4 : 1 + 4);
    }
  } finally {
    for (const name of ['document', 'addEventListener', 'removeEventListener']) delete globalThis[name];
  }
});

test('a pause ends when the network is back', async () => {
  const browser = new EventTarget();
  Object.assign(globalThis, { addEventListener: browser.addEventListener.bind(browser), removeEventListener: browser.removeEventListener.bind(browser) });
  try {
    const net = network([event(1, 'a'), lost], [done]);
    const hour = 3_600_000;
    const onState = state => state === 'reconnecting' && queueMicrotask(() => browser.dispatchEvent(new Event('online')));
    const response = await createResumingFetch({ minDelay: hour, maxDelay: hour, fetch: net.fetch, onState })('/s/stream');
    assert.equal(await response.text(), event(1, 'a') + done);
  } finally {
    for (const name of ['addEventListener', 'removeEventListener']) delete globalThis[name];
  }
});

test('attempts that came to nothing leave no listener behind', async () => {
  const down = Array.from({ length: 20 }, () => new TypeError('fetch failed'));
  const net = network([event(1, 'a'), lost], ...down, [done]);
  const { signal } = new AbortController();
  let listeners = 0;
  const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
  let most = 0;
  signal.addEventListener = (...args) => (most = Math.max(most, ++listeners), add(...args));
  signal.removeEventListener = (...args) => (listeners--, remove(...args));
  const response = await createResumingFetch({ ...quick, maxRetries: Infinity, fetch: net.fetch })('/s/stream', { signal });
  assert.equal(await response.text(), event(1, 'a') + done);
  assert.ok(most <= 3, `${most} listeners at once`);
});

test('a message whose answer never came is sent again, a regenerate is not', async () => {
  const net = network(new TypeError('fetch failed'), [event(undefined, 'start'), lost], [event(1, 'a') + done]);
  const response = await createResumingFetch({ ...quick, fetch: net.fetch })('/api/chat/s', post);
  assert.equal(await response.text(), event(1, 'a') + done);
  assert.deepEqual(net.requests.map(r => r.body), [post.body, post.body, post.body]);

  const again = { ...post, body: JSON.stringify({ trigger: 'regenerate-message' }) };
  await assert.rejects(createResumingFetch({ ...quick, fetch: network(lost).fetch })('/api/chat/s', again), lost);
  const half = await createResumingFetch({ ...quick, fetch: network([lost]).fetch })('/api/chat/s', again);
  await assert.rejects(half.text(), error => isResyncError(error) && error.code === 'unknown_outcome');
});

test('an abort ends the wait and the stream', async () => {
  const net = network([event(1, 'a'), lost], new TypeError('fetch failed'));
  const abort = new AbortController();
  let tries = 0;
  const fetch = async (url, init) => {
    if (++tries === 2) abort.abort();
    return net.fetch(url, init);
  };
  const response = await createResumingFetch({ minDelay: 1, maxDelay: 1, fetch })('/s/stream', { signal: abort.signal });
  await assert.rejects(response.text(), { name: 'AbortError' });
  assert.equal(tries, 2);
});

test('a stream that fell silent is left', async () => {
  const net = network([done]);
  let first = true;
  const fetch = async (url, init) => {
    if (!first) return net.fetch(url, init);
    first = false;
    return new Response(new ReadableStream(), { headers: { 'content-type': 'text/event-stream' } });
  };
  const response = await createResumingFetch({ ...quick, idleTimeout: 1, fetch })('/s/stream');
  assert.equal(await response.text(), done);
});

test('what is not a stream is handed through', async () => {
  const net = network({ status: 409, body: '{"code":"busy"}' }, { status: 204 });
  const fetch = createResumingFetch({ ...quick, fetch: net.fetch });
  assert.equal((await fetch('/api/chat/s', post)).status, 409);
  assert.equal((await fetch('/api/chat/s/stream')).status, 204);
});

test('without a session in its path a POST is continued at the session that was named', async () => {
  const requests = [];
  const fetch = async (url, init) => {
    requests.push(String(url));
    const body = requests.length === 1 ? event(1, 'a') : done;
    return new Response(body, { headers: { 'content-type': 'text/event-stream', 'x-session-id': 'a b' } });
  };
  await (await createResumingFetch({ ...quick, fetch })('/api/chat?x=1', post)).text();
  assert.deepEqual(requests, ['/api/chat?x=1', '/api/chat/a%20b/stream?x=1']);
});

test('joined deltas fold to the same', async () => {
  const chunks = [
    { type: 'text-start', id: '1' },
    ...Array.from('abcdef', delta => ({ type: 'text-delta', id: '1', delta })),
    { type: 'reasoning-delta', id: '2', delta: 'x' },
    { type: 'reasoning-delta', id: '3', delta: 'y' },
    { type: 'tool-input-delta', toolCallId: 'c', inputTextDelta: '{' },
    { type: 'tool-input-delta', toolCallId: 'c', inputTextDelta: '}' },
    { type: 'finish' },
  ];
  const out = [];
  for await (const chunk of ReadableStream.from(chunks).pipeThrough(joinDeltas(10_000))) out.push(chunk);
  assert.equal(out.map(c => c.delta ?? c.inputTextDelta ?? `<${c.type}>`).join(''), '<text-start>abcdefxy{}<finish>');
  assert.ok(out.length < chunks.length);
});
