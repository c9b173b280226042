// Starts and ends the server under test.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

const root = resolve(import.meta.dirname, '../../..');
let built;

/** The binary: SPOOL_BIN, or built here once. */
export function binary() {
  if (process.env.SPOOL_BIN) return process.env.SPOOL_BIN;
  if (!built) {
    built = join(tempDir(), 'spool');
    execFileSync('go', ['build', '-o', built, './cmd/spool'], { cwd: root, stdio: 'inherit' });
  }
  return built;
}

const dirs = [];
const servers = new Set();
process.on('exit', () => {
  for (const server of servers) server.kill('SIGKILL');
  for (const dir of dirs) rmSync(dir, { recursive: true, force: true });
});

export function tempDir() {
  const dir = mkdtempSync(join(tmpdir(), 'spool-conformance-'));
  dirs.push(dir);
  return dir;
}

/**
 * A port that is free now, for a server that must come back on the same one. It lies
 * below those that outgoing connections take, so that none of them gets it meanwhile.
 */
export async function freePort() {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const server = createServer();
    const free = await new Promise(done => server.once('error', () => done(false)).listen(port, '127.0.0.1', () => done(true)));
    if (!free) continue;
    await new Promise(done => server.close(done));
    return port;
  }
}

/**
 * Makes a server that was killed one whose death cannot be proved, as on a network file system: its leases have to
 * expire. They do after so many milliseconds.
 */
export function leaveLeases(store, after) {
  const at = Date.now() + after;
  const locks = readdirSync(dirname(store)).filter(name => name.startsWith(`${basename(store)}-owner-`));
  if (!locks.length) throw new Error('the server that was killed has left no lock file');
  for (const name of locks) rmSync(join(dirname(store), name));
  execFileSync('sqlite3', [store, `UPDATE session SET lease_expires = ${at}, ready = MIN(ready, ${at}) WHERE lease_owner <> ''`]);
}

/**
 * Starts `spool serve` and waits for its first line, the URL.
 * @returns {Promise<{url: string, kill9(): Promise<void>, stop(): Promise<void>, stderr(): string}>}
 */
export async function start({ store, port = 0, args = [], env = {} } = {}) {
  const db = store ?? join(tempDir(), 'spool.db');
  // A machine that stands still for some time is not what is tested: nobody is to take a run over meanwhile, and no replay to end.
  const patient = ['--lease-ttl', '2m', '--replay-grace', '30m'];
  // The harder kind of model: what a lost process had begun to say is taken back. Tests of the other kind name it.
  const model = ['--model', 'scripted?background=0'];
  // And each delta is a record, so that every cut is the same in every run.
  const child = spawn(binary(), ['serve', '--addr', `127.0.0.1:${port}`, '--store', `sqlite:${db}`, '--demo-rate', '0', '--linger=-1s', ...model, ...patient, ...args], {
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', text => {
    errors = (errors + text).slice(-20_000);
  });
  servers.add(child);
  const ended = new Promise(done => child.once('exit', (code, signal) => done({ code, signal }))).finally(() => servers.delete(child));
  const url = await Promise.race([
    new Promise(done => createInterface({ input: child.stdout }).once('line', done)),
    ended.then(({ code }) => {
      throw new Error(`spool serve ended with ${code}: ${errors}`);
    }),
  ]);
  return {
    url: url.replace(/\/$/, ''),
    store: db,
    stderr: () => errors,
    async kill9() {
      child.kill('SIGKILL');
      await ended;
    },
    async stop() {
      child.kill('SIGTERM');
      await ended;
    },
  };
}
