import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream as NodeReadableStream } from 'node:stream/web';
import { createProxy, type ProxyOptions } from './proxy.js';

/** A request as Express has it: below a mount path, and perhaps with a body that was parsed. */
type Request = IncomingMessage & { originalUrl?: string; body?: unknown };

/**
 * An Express middleware (4 or 5), and a listener for `node:http`, that passes requests on to
 * a Spool server:
 *
 * ```ts
 * app.use('/api/chat', spool({ url: 'http://127.0.0.1:8080' }));
 * ```
 *
 * It may stand before or after `express.json()`.
 */
export function spool(options: ProxyOptions): (request: Request, response: ServerResponse, next?: (error?: unknown) => void) => void {
  const handle = createProxy(options);
  return (request, response, next) => {
    serve(handle, request, response).catch(error => {
      if (next) next(error);
      else response.destroy(error as Error);
    });
  };
}

async function serve(handle: (request: globalThis.Request) => Promise<Response>, request: Request, response: ServerResponse): Promise<void> {
  const left = new AbortController();
  response.on('close', () => left.abort()); // also ends the request to Spool: its reader has gone
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    for (const v of Array.isArray(value) ? value : [value ?? '']) headers.append(name, v);
  }
  const answer = await handle(
    new globalThis.Request(new URL(request.originalUrl ?? request.url ?? '/', `http://${request.headers.host ?? 'localhost'}`), {
      method: request.method ?? 'GET',
      headers,
      signal: left.signal,
      ...bodyOf(request),
    } as RequestInit),
  );
  response.statusCode = answer.status;
  answer.headers.forEach((value, name) => response.setHeader(name, value));
  if (!answer.body) return void response.end();
  response.flushHeaders();
  try {
    await pipeline(Readable.fromWeb(answer.body as NodeReadableStream), response);
  } catch (error) {
    if (!left.signal.aborted) throw error; // the stream broke: the client comes back for the rest
  }
}

/** The request's body, or what a body parser has made of it. */
function bodyOf(request: Request): { body?: unknown; duplex?: 'half' } {
  if (request.method === 'GET' || request.method === 'HEAD') return {};
  const { body } = request;
  if (body !== undefined && request.readableEnded) return { body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body) };
  return { body: Readable.toWeb(request), duplex: 'half' };
}
