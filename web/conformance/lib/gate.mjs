// Holds a server's appends back: with SPOOL_TEST_GATE set it makes one record
// an append and asks GET /{session}/{n} before each, but for those that an
// answer's Gate-Through header already granted.
import { createServer } from 'node:http';
import { close, listen } from './local.mjs';
import { awaited } from './wait.mjs';

export async function startGate() {
  const sessions = new Map();
  const of = id => {
    let s = sessions.get(id);
    if (!s) sessions.set(id, (s = { limit: Infinity, asked: 0, held: [], watchers: [], stop: undefined }));
    return s;
  };
  const settle = s => {
    s.held = s.held.filter(({ n, answer }) => {
      if (n > s.limit) return true;
      answer();
      return false;
    });
    s.watchers = s.watchers.filter(({ n, done }) => {
      if (s.asked < n) return true;
      done();
      return false;
    });
  };
  const server = createServer((request, response) => {
    const url = new URL(request.url, 'http://gate');
    const [, id, n] = url.pathname.split('/');
    const types = url.searchParams.get('types') ?? '';
    const s = of(decodeURIComponent(id));
    s.asked = Math.max(s.asked, Number(n));
    if (s.stop && types.split(',').includes(s.stop.type)) {
      s.limit = Number(n) - 1;
      s.stop.done();
      s.stop = undefined;
    }
    s.held.push({ n: Number(n), answer: () => response.writeHead(200, { 'Gate-Through': s.stop ? Number(n) : Math.min(s.limit, Number.MAX_SAFE_INTEGER) }).end() });
    settle(s);
  });
  server.keepAliveTimeout = 60_000;
  const url = await listen(server);
  return {
    url,
    /** Grants the session's appends up to n. */
    allow(session, n) {
      const s = of(session);
      s.limit = n;
      settle(s);
    },
    /** Holds the session's next append of a type, and resolves when the server asks for it. */
    holdAt: (session, type) => awaited(new Promise(done => (of(session).stop = { type, done })), () => `${session} did not come to ${type}`),
    limit: session => of(session).limit,
    /** Resolves when the server asks for append n, which means that n - 1 is committed. */
    asked(session, n) {
      const s = of(session);
      const comes = new Promise(done => {
        s.watchers.push({ n, done });
        settle(s);
      });
      return awaited(comes, () => `${session} asked for ${s.asked} appends, not for ${n}`);
    },
    close: () => close(server),
  };
}
