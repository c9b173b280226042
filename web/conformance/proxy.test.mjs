// An application's own server between the clients and Spool: a handler of standard requests,
// as Next.js has them, and Express in front of its body parser and behind it.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { createRouteHandlers } from '@spool-run/server';
import { spool as proxy } from '@spool-run/server/express';
import express from 'express';
import { after, before, test } from './lib/test.mjs';
import { answers, newest6, newest7, open, userMessage } from './lib/clients.mjs';
import { newSession, resuming, settled, snapshotOf } from './lib/cut.mjs';
import { startGate } from './lib/gate.mjs';
import { Network } from './lib/net.mjs';
import { freePort, start } from './lib/spool.mjs';
import { eventually } from './lib/wait.mjs';

let gate, spool;
const servers = [];

async function listen(app) {
  const server = createServer(app).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  return `http://127.0.0.1:${server.address().port}`;
}

/** Who asks is known by a header; sessions are theirs. */
function authorize(request, session) {
  const user = request.headers.get('x-user');
  if (user === 'nobody') return Response.json({ error: 'sign in first', code: 'unauthenticated' }, { status: 401 });
  return { 'x-checked': `${user} ${session}` };
}

const kinds = {
  'route handlers': options => {
    const handlers = createRouteHandlers(options);
    return async (req, res) => {
      const left = new AbortController();
      res.on('close', () => left.abort());
      const init = { method: req.method, headers: req.headers, signal: left.signal, ...(req.method === 'POST' && { body: Readable.toWeb(req), duplex: 'half' }) };
      const response = await handlers[req.method](new Request(`http://localhost${req.url}`, init));
      res.writeHead(response.status, Object.fromEntries(response.headers));
      if (response.body) Readable.fromWeb(response.body).on('error', () => res.destroy()).pipe(res);
      else res.end();
    };
  },
  'Express, before its parser': options => express().use('/api/chat', proxy(options)).use(express.json()),
  'Express, behind its parser': options => express().use(express.json({ limit: '50mb' })).use('/api/chat', proxy(options)),
};

before(async () => {
  gate = await startGate();
  spool = await start({ env: { SPOOL_TEST_GATE: gate.url } });
});
after(async () => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  await spool?.stop();
  gate?.close();
});

/** How many streams of Spool are open. */
async function readers() {
  const metrics = await (await fetch(`${spool.url}/metrics`)).text();
  return [...metrics.matchAll(/^spool_readers\{.*\} (\d+)$/gm)].reduce((sum, [, n]) => sum + Number(n), 0);
}

for (const [kind, make] of Object.entries(kinds)) {
  for (const client of [newest6, newest7]) {
    test(`a stream that is cut behind it comes back whole: ${kind}, ${client.name}`, async () => {
      const url = await listen(make({ url: spool.url, authorize }));
      const session = newSession('proxied');
      const net = new Network({ cutAfter: 9 });
      const { chat, errors } = open(client, { url, session, fetch: resuming(net) });
      await chat.sendMessage(userMessage('user-1', 'tools'));
      assert.deepEqual(errors, []);
      assert.ok(net.requests.length >= 2, 'nothing was cut');
      const { messages } = await snapshotOf(spool.url, session);
      assert.deepEqual(answers(chat), answers({ messages, client }));
    });
  }

  test(`commands, errors and positions are passed on: ${kind}`, async () => {
    const url = await listen(make({ url: spool.url, authorize }));
    const session = newSession('commands');
    const held = gate.holdAt(session, 'tool_start');
    const { chat } = open(newest6, { url, session });
    const done = chat.sendMessage(userMessage('user-1', 'tools'));
    await held;
    const busy = await fetch(`${url}/api/chat/${session}`, { method: 'POST', headers: { 'content-type': 'application/json', accept: 'application/json' }, body: '{"message":"hello"}' });
    assert.deepEqual([busy.status, (await busy.json()).code], [409, 'busy']);
    const stream = await fetch(`${url}/api/chat/${session}/stream`);
    assert.equal(stream.headers.get('cache-control'), 'no-cache, no-transform');
    assert.equal(stream.headers.get('x-accel-buffering'), 'no');
    assert.equal(stream.headers.get('x-session-id'), session);
    await stream.body.cancel();
    const stopping = fetch(`${url}/api/chat/${session}/stop`, { method: 'POST' });
    gate.allow(session, Infinity);
    assert.equal((await stopping).status, 200);
    await done;
    await settled(spool.url, session);
    assert.equal((await fetch(`${url}/api/chat/${session}/snapshot`)).status, 200);
    assert.equal((await fetch(`${url}/api/chat/none/snapshot`)).status, 404);
    assert.equal((await fetch(`${url}/api/chat/${session}`, { method: 'DELETE' })).status, 204);
  });

  test(`whom the application refuses gets no further: ${kind}`, async () => {
    const url = await listen(make({ url: spool.url, authorize }));
    const refused = await fetch(`${url}/api/chat/s/snapshot`, { headers: { 'x-user': 'nobody' } });
    assert.deepEqual([refused.status, (await refused.json()).code], [401, 'unauthenticated']);
  });

  test(`a reader who leaves also leaves Spool: ${kind}`, async () => {
    const url = await listen(make({ url: spool.url }));
    const session = newSession('leaving');
    const held = gate.holdAt(session, 'tool_start');
    const { chat } = open(newest6, { url, session });
    void chat.sendMessage(userMessage('user-1', 'tools')).catch(() => {});
    await held;
    await eventually(async () => assert.equal(await readers(), 1));
    await chat.stop();
    await eventually(async () => assert.equal(await readers(), 0));
    gate.allow(session, Infinity);
    await settled(spool.url, session);
  });

  test(`while Spool is away, the answer says when to ask again: ${kind}`, async () => {
    const url = await listen(make({ url: `http://127.0.0.1:${await freePort()}` }));
    const answer = await fetch(`${url}/api/chat/s/snapshot`);
    assert.deepEqual([answer.status, answer.headers.get('retry-after'), (await answer.json()).code], [503, '1', 'unavailable']);
  });
}

test('the application decides which headers Spool gets', async () => {
  let got;
  const fetch = async (url, init) => {
    got = [String(url), Object.fromEntries(init.headers)];
    return new Response(null, { status: 204 });
  };
  const { POST } = createRouteHandlers({ url: 'http://spool:8080/', base: '/chats/', fetch, authorize, pass: ['x-tenant'] });
  const headers = { cookie: 'secret', authorization: 'Bearer secret', 'x-tenant': 't', 'x-user': 'ann', 'content-type': 'application/json' };
  await POST(new Request('http://app/chats/a%20b/stop?x=1', { method: 'POST', headers, body: '{}' }));
  assert.deepEqual(got, ['http://spool:8080/api/chat/a%20b/stop?x=1', { 'content-type': 'application/json', 'x-checked': 'ann a b', 'x-tenant': 't' }]);
  assert.equal((await POST(new Request('http://app/chatsandmore/a', { method: 'POST' }))).status, 404);
});
