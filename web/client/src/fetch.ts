import { ConnectionLostError, ResyncError, requestError } from './errors.js';
import { SSESplitter } from './sse.js';
import { onWake } from './wake.js';

/**
 * `live`: bytes flow. `reconnecting`: trying again. `offline`: trying again, and the
 * browser says there is no network. `lost`: given up, with a ConnectionLostError.
 */
export type ConnectionState = 'live' | 'reconnecting' | 'offline' | 'lost';

export interface ResumingFetchOptions {
  /** What really fetches; default the global one. */
  fetch?: typeof fetch;
  /** Where a broken stream is continued. Default: a GET's own URL, a POST's with `/stream` appended. */
  attachURL?: (request: { url: string; method: string; response?: Response }) => string;
  /** Called when the connection's state changes. */
  onState?: (state: ConnectionState) => void;
  /** Called with the id of each event that has been passed on: the reader's cursor. */
  onPosition?: (id: string) => void;
  /** First and longest pause between two attempts in milliseconds; each is half as long again as the one before, and drawn between half of that and all. Default 250 and 10,000. */
  minDelay?: number;
  maxDelay?: number;
  /**
   * How many attempts in a row may bring nothing before the stream fails with a
   * ConnectionLostError. The count starts again with whatever comes, heartbeats
   * included, when the browser is online again, and when the user is back at the page.
   * Default 20, about a minute and a half; Infinity never gives up.
   */
  maxRetries?: number;
  /** A stream silent for this long, heartbeats included, is taken for dead. Milliseconds, default 30,000; 0 never. */
  idleTimeout?: number;
}

const retryable = new Set([408, 425, 429, 500, 502, 503, 504]);

/**
 * A `fetch` whose event streams do not break. It remembers the last event id
 * that it passed on; when the body fails, or ends before `[DONE]`, it asks the
 * attach URL for what follows and splices that in, until it works, the request
 * is aborted or `maxRetries` attempts have failed. The reader sees one whole stream.
 * When the server can no longer continue it, the body fails with a ResyncError; when
 * it cannot be reached, with a ConnectionLostError.
 *
 * Events without an id belong to the next one that has one, and are passed on
 * with it: what was cut in the middle is sent again as a whole.
 */
export function createResumingFetch(options: ResumingFetchOptions = {}): typeof fetch {
  return async (input, init) => {
    const stream = new ResumedStream(options, input, init);
    const response = await stream.open();
    return stream.wrap(response);
  };
}

class ResumedStream {
  readonly #o: ResumingFetchOptions;
  readonly #input: RequestInfo | URL;
  readonly #init: RequestInit;
  readonly #method: string;
  readonly #url: string;
  readonly #signal: AbortSignal | undefined;
  #attach: string | undefined;
  #id: string | undefined;
  #failures = 0; // attempts since the last event, for how long to wait
  #unanswered = 0; // attempts since anything came, for when to give up
  #problem: unknown;
  #current: AbortController | undefined;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #held: string[] = [];
  #splitter = new SSESplitter();
  #decoder = new TextDecoder();
  #cancelled = false;

  constructor(o: ResumingFetchOptions, input: RequestInfo | URL, init: RequestInit = {}) {
    this.#o = o;
    this.#input = input;
    this.#init = init;
    const request = input instanceof Request ? input : undefined;
    this.#method = (init.method ?? request?.method ?? 'GET').toUpperCase();
    this.#url = request?.url ?? String(input);
    this.#signal = init.signal ?? request?.signal ?? undefined;
  }

  /** The first answer: also this request is tried again where that is safe. */
  open(): Promise<Response> {
    return this.#awake(async () => {
      for (;;) {
        let response: Response | undefined;
        try {
          response = await this.#fetch(this.#input, this.#init);
        } catch (error) {
          if (this.#signal?.aborted || this.#cancelled || !this.#repeatable()) throw error;
          this.#problem = error;
        }
        if (response && (response.status !== 503 || !this.#repeatable())) {
          if (response.ok) this.#o.onState?.('live');
          return response;
        }
        await this.#pause(response);
      }
    });
  }

  wrap(response: Response): Response {
    if (!isStream(response)) return response;
    this.#attach = this.#attachURL(response);
    this.#use(response);
    const encoder = new TextEncoder();
    const body = new ReadableStream<Uint8Array>({
      pull: async controller => {
        try {
          const text = await this.#next();
          if (text !== '') controller.enqueue(encoder.encode(text));
          if (this.#reader === undefined) controller.close();
        } catch (error) {
          this.#drop();
          controller.error(error);
        }
      },
      cancel: reason => {
        this.#cancelled = true;
        this.#drop(reason);
      },
    });
    return new Response(body, { status: response.status, statusText: response.statusText, headers: response.headers });
  }

  /** The next events to pass on. The stream is over when no reader is left. */
  async #next(): Promise<string> {
    for (;;) {
      const reader = this.#reader;
      if (!reader) return '';
      let read: ReadableStreamReadResult<Uint8Array>;
      try {
        read = await this.#watch(reader.read());
      } catch (error) {
        if (this.#signal?.aborted) throw this.#signal.reason ?? error;
        if (this.#cancelled) throw error;
        this.#problem = error;
        await this.#reconnect();
        continue;
      }
      if (read.done) {
        this.#problem = new TypeError('network error: the stream ended early');
        await this.#reconnect();
        continue;
      }
      this.#unanswered = 0;
      const text = this.#take(this.#decoder.decode(read.value, { stream: true }));
      if (text !== '') return text;
    }
  }

  #take(text: string): string {
    let out = '';
    for (const block of this.#splitter.push(text)) {
      if (block.data === undefined && block.id === undefined) continue; // a comment
      this.#held.push(block.raw);
      const done = block.data === '[DONE]';
      if (block.id === undefined && !done) continue;
      out += this.#held.join('');
      this.#held = [];
      if (block.id !== undefined) {
        this.#id = block.id;
        this.#failures = 0;
        this.#o.onPosition?.(block.id);
      }
      if (done) {
        this.#drop();
        break;
      }
    }
    return out;
  }

  #reconnect(): Promise<void> {
    this.#drop();
    return this.#awake(async () => {
      for (let refused: Response | undefined; ; ) {
        await this.#pause(refused);
        refused = undefined;
        let response: Response;
        try {
          response = await this.#ask();
        } catch (error) {
          if (this.#signal?.aborted) throw this.#signal.reason ?? error;
          if (this.#cancelled || error instanceof ResyncError) throw error;
          this.#problem = error;
          continue;
        }
        if (isStream(response)) {
          this.#o.onState?.('live');
          this.#use(response);
          return;
        }
        if (response.status === 204) throw new ResyncError('gone');
        if (!retryable.has(response.status)) {
          const problem = await requestError(response);
          throw new ResyncError(problem.code, problem.message);
        }
        refused = response;
      }
    });
  }

  #ask(): Promise<Response> {
    if (this.#id === undefined) {
      // Nothing was passed on yet, so the whole request may be made again.
      if (!this.#repeatable()) throw new ResyncError('unknown_outcome');
      return this.#fetch(this.#input, this.#init);
    }
    const from = this.#input instanceof Request ? this.#input.headers : undefined;
    const headers = new Headers(this.#init.headers ?? from);
    for (const name of ['content-type', 'x-resume-from-sequence', 'x-resume-at']) headers.delete(name);
    headers.set('last-event-id', this.#id);
    const { body: _body, method: _method, ...init } = this.#init;
    return this.#fetch(this.#attach ?? this.#url, { ...init, method: 'GET', headers });
  }

  async #fetch(input: RequestInfo | URL, init: RequestInit): Promise<Response> {
    this.#current?.abort(); // of an attempt that came to nothing
    const current = new AbortController();
    this.#current = current;
    const abort = () => current.abort(this.#signal?.reason);
    if (this.#signal?.aborted) abort();
    this.#signal?.addEventListener('abort', abort, { once: true });
    current.signal.addEventListener('abort', () => this.#signal?.removeEventListener('abort', abort), { once: true });
    const request = input instanceof Request ? input.clone() : input;
    return await (this.#o.fetch ?? fetch)(request, { ...init, signal: current.signal });
  }

  /** A POST may be made again if the server knows a repeat by its message's id. */
  #repeatable(): boolean {
    if (this.#method === 'GET' || this.#method === 'HEAD') return true;
    if (this.#method !== 'POST' || typeof this.#init.body !== 'string') return false;
    try {
      return (JSON.parse(this.#init.body) as { trigger?: unknown }).trigger === 'submit-message';
    } catch {
      return false;
    }
  }

  #attachURL(response: Response): string {
    const url = response.url || this.#url;
    if (this.#o.attachURL) return this.#o.attachURL({ url, method: this.#method, response });
    if (this.#method === 'GET') return url;
    const [path, query] = split(url);
    const session = response.headers.get('x-session-id');
    const known = session === null || lastSegment(path) === session;
    return `${path}${known ? '' : `/${encodeURIComponent(session)}`}/stream${query}`;
  }

  #use(response: Response): void {
    this.#reader = response.body!.getReader();
    this.#splitter = new SSESplitter();
    this.#decoder = new TextDecoder();
    this.#held = [];
  }

  #drop(reason?: unknown): void {
    this.#reader?.cancel(reason).catch(() => {});
    this.#reader = undefined;
    this.#current?.abort(reason);
    this.#held = [];
  }

  /** Fails a read that brings nothing for too long. */
  #watch<T>(read: Promise<T>): Promise<T> {
    const limit = this.#o.idleTimeout ?? 30_000;
    if (limit === 0) return read;
    return new Promise<T>((resolve, reject) => {
      const timer = setTimeout(() => reject(new TypeError('network error: the stream fell silent')), limit);
      read.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  /** Makes attempts; each time that the network or the user comes back they are counted from none. */
  async #awake<T>(attempts: () => Promise<T>): Promise<T> {
    const off = onWake(() => {
      this.#failures = this.#unanswered = 0;
    });
    try {
      return await attempts();
    } finally {
      off();
    }
  }

  /** Waits before the next attempt, longer after each that failed, or gives up. */
  async #pause(refused?: Response): Promise<void> {
    const asked = Number(refused?.headers.get('retry-after') ?? 0) * 1000 || 0;
    if (refused) {
      this.#problem = new Error(`HTTP ${refused.status}`);
      await refused.body?.cancel().catch(() => {});
    }
    if (this.#unanswered >= (this.#o.maxRetries ?? 20)) {
      this.#o.onState?.('lost');
      throw new ConnectionLostError(this.#unanswered, this.#id, this.#problem);
    }
    this.#unanswered++;
    this.#o.onState?.(globalThis.navigator?.onLine === false ? 'offline' : 'reconnecting');
    const longest = this.#o.maxDelay ?? 10_000;
    // Growing by half, pauses stay a fraction of the outage: its end is noticed soon.
    const delay = Math.min(longest, (this.#o.minDelay ?? 250) * 1.5 ** Math.min(this.#failures++, 50));
    await nap(Math.max(Math.min(longest, asked), delay * (0.5 + Math.random() / 2)), this.#signal);
    if (this.#cancelled) throw new DOMException('the reader left', 'AbortError');
  }
}

function isStream(response: Response): boolean {
  return response.status === 200 && response.body !== null && (response.headers.get('content-type') ?? '').startsWith('text/event-stream');
}

function split(url: string): [path: string, query: string] {
  const at = url.search(/[?#]/);
  if (at < 0) return [url.replace(/\/$/, ''), ''];
  return [url.slice(0, at).replace(/\/$/, ''), url.slice(at).replace(/#.*/, '')];
}

function lastSegment(path: string): string {
  const segment = path.slice(path.lastIndexOf('/') + 1);
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Waits, but no longer than until the network or the user is back. */
function nap(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const over = (settle: () => void) => () => {
      clearTimeout(timer);
      off();
      signal?.removeEventListener('abort', aborted);
      settle();
    };
    const aborted = over(() => reject(signal?.reason));
    const woken = over(resolve);
    const timer = setTimeout(woken, ms);
    const off = onWake(woken);
    if (signal?.aborted) return aborted();
    signal?.addEventListener('abort', aborted);
  });
}
