/** How an application's own routes pass requests on to a Spool server. */
export interface ProxyOptions {
  /** The Spool server, such as `http://127.0.0.1:8080`. */
  url: string;
  /** The path of the application's own routes; what follows it is passed on. Default `/api/chat`. */
  base?: string;
  /**
   * Called before each request is passed on: the place to check who asks. It returns the
   * headers that the Spool server gets beside the passed ones (its `Authorization`, say), or
   * a Response, which is sent instead.
   */
  authorize?: (request: Request, session: string | undefined) => HeadersInit | Response | undefined | Promise<HeadersInit | Response | undefined>;
  /** Request headers to pass on beside the ones that Spool reads, such as `cookie`. */
  pass?: string[];
  /** What really fetches; default the global one. */
  fetch?: typeof fetch;
}

// What Spool reads. Cookies and credentials of the application stay with it.
const passed = [
  'accept',
  'content-type',
  'last-event-id',
  'x-resume-from-sequence',
  'x-resume-at',
  'x-existing-message-id',
  'producer-epoch',
  'producer-id',
  'producer-seq',
  'idempotency-key',
  'if-none-match',
  'traceparent',
  'tracestate',
];

// What belongs to one connection, and what `fetch` has undone.
const dropped = ['connection', 'keep-alive', 'transfer-encoding', 'content-length', 'content-encoding', 'te', 'trailer', 'upgrade', 'proxy-authenticate'];

/** Returns a handler of standard requests that answers with what a Spool server answers, streams included. */
export function createProxy(options: ProxyOptions): (request: Request) => Promise<Response> {
  const base = (options.base ?? '/api/chat').replace(/\/$/, '');
  const target = options.url.replace(/\/$/, '');
  return async request => {
    const url = new URL(request.url);
    if (url.pathname !== base && !url.pathname.startsWith(`${base}/`)) return problem(404, 'not_found', `this handler serves ${base}`);
    const rest = url.pathname.slice(base.length);
    const allowed = await options.authorize?.(request, sessionOf(rest));
    if (allowed instanceof Response) return allowed;
    const headers = new Headers();
    for (const name of [...passed, ...(options.pass ?? [])]) {
      const value = request.headers.get(name);
      if (value !== null) headers.set(name, value);
    }
    new Headers(allowed).forEach((value, name) => headers.set(name, value));
    const init: RequestInit & { duplex?: 'half' } = {
      method: request.method,
      headers,
      signal: request.signal,
      redirect: 'manual',
      cache: 'no-store',
      ...(request.body && { body: request.body, duplex: 'half' }),
    };
    let answer: Response;
    try {
      answer = await (options.fetch ?? fetch)(`${target}/api/chat${rest}${url.search}`, init);
    } catch {
      if (request.signal.aborted) return new Response(null, { status: 499 });
      // The client library tries again after this answer.
      return problem(503, 'unavailable', 'the Spool server cannot be reached', { 'Retry-After': '1' });
    }
    return new Response(answer.body, { status: answer.status, statusText: answer.statusText, headers: answerHeaders(answer) });
  };
}

function answerHeaders(answer: Response): Headers {
  const headers = new Headers(answer.headers);
  for (const name of dropped) headers.delete(name);
  if (headers.get('content-type')?.startsWith('text/event-stream')) {
    headers.set('Cache-Control', 'no-cache, no-transform'); // a stream that is compressed is held back
    headers.set('X-Accel-Buffering', 'no');
  }
  return headers;
}

/** The session that a path below the base names. */
function sessionOf(rest: string): string | undefined {
  const segment = rest.split('/')[1];
  if (!segment) return undefined;
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

const problem = (status: number, code: string, error: string, headers?: HeadersInit) =>
  Response.json({ error, code }, { status, ...(headers && { headers }) });

/**
 * The route handlers of a Next.js App Router, for `app/api/chat/[...path]/route.ts`:
 *
 * ```ts
 * export const { GET, POST, DELETE } = createRouteHandlers({ url: process.env.SPOOL_URL! });
 * export const dynamic = 'force-dynamic';
 * ```
 */
export function createRouteHandlers(options: ProxyOptions): Record<'GET' | 'POST' | 'DELETE', (request: Request) => Promise<Response>> {
  const handle = createProxy(options);
  return { GET: handle, POST: handle, DELETE: handle };
}
