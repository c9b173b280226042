// The producers of examples/: what they write is in the log once, though the answers to their claim and to an append are lost.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { resolve } from 'node:path';
import { after, before, test } from './lib/test.mjs';
import { start } from './lib/spool.mjs';

const examples = resolve(import.meta.dirname, '../../examples/producers');
let spool;

before(async () => {
  spool = await start();
});
after(() => spool?.stop());

/** A proxy that breaks the connection instead of giving the answers to the requests of these numbers, from 0. */
async function losing(...lost) {
  let seen = 0;
  const proxy = createServer(async (request, response) => {
    const n = seen++;
    const body = await new Response(request).arrayBuffer();
    const headers = Object.fromEntries(Object.entries(request.headers).filter(([name]) => /^producer-|^content-type$/.test(name)));
    const answer = await fetch(spool.url + request.url, { method: request.method, headers, body });
    const text = await answer.text();
    if (lost.includes(n)) return request.socket.resetAndDestroy();
    response.writeHead(answer.status, { 'Content-Type': 'application/json' }).end(text);
  });
  await new Promise(done => proxy.listen(0, '127.0.0.1', done));
  return { url: `http://127.0.0.1:${proxy.address().port}`, requests: () => seen, close: () => proxy.close() };
}

async function run(command, ...args) {
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', text => (errors += text));
  const code = await new Promise((done, fail) => child.once('error', fail).once('close', done));
  return { code, errors };
}

/** What the log says, without what differs from run to run. */
async function log(session) {
  const response = await fetch(`${spool.url}/api/chat/${session}/records?limit=1000`);
  assert.equal(response.status, 200);
  return (await response.json()).records.map(record => {
    const { type, delta, agentType, finishReason } = record.chunk ?? record;
    return { type, delta, agentType, finishReason };
  });
}

for (const [name, ...command] of [['python', 'python3', `${examples}/forecast.py`], ['shell', 'sh', `${examples}/forecast.sh`]]) {
  test(`${name}: lost answers`, async () => {
    for (const [session, lost] of [[`${name}-whole`, []], [`${name}-cut`, [0, 3]]]) {
      const proxy = await losing(...lost);
      const { code, errors } = await run(...command, proxy.url, session);
      proxy.close();
      assert.equal(code, 0, errors);
      assert.equal(proxy.requests(), 4 + lost.length);
    }
    const whole = await log(`${name}-whole`);
    assert.equal(whole.map(r => r.delta ?? '').join(''), 'Sunny today, rain tomorrow.');
    assert.deepEqual(await log(`${name}-cut`), whole);
  });

  test(`${name}: a refusal`, async () => {
    const { code, errors } = await run(...command, spool.url, `${name}.1`);
    assert.equal(code, 1);
    assert.match(errors, /400: .*invalid_session_id/);
  });
}
