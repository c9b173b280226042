// A network for the clients that can be cut, and that fails as a browser's does.

/**
 * A fetch whose responses can be counted and cut.
 *
 * Node reports a lost body as `terminated`, which no browser does and which the
 * clients treat differently; here it is the TypeError that Chrome throws.
 *
 * @param {object} o
 * @param {number} [o.cutAfter] events after which the next streamed response is cut
 * @param {boolean} [o.torn] cut in the middle of the event that follows
 * @param {Promise<void>} [o.hold] what every request but the first waits for
 */
export class Network {
  constructor({ cutAfter, torn = false, hold } = {}) {
    this.hold = hold;
    this.cutAfter = cutAfter;
    this.torn = torn;
    this.requests = [];
    this.frames = 0;
    this.ids = [];
    this.lastID = undefined;
    this.wasCut = new Promise(done => (this.#cut = done));
    this.answered = [];
    this.#watchers = [];
  }

  #cut;
  #watchers;

  /** Resolves when the nth request (from 1) has got its response's head. */
  response(n) {
    return new Promise(done => {
      if (this.answered.length >= n) done(this.answered[n - 1]);
      else this.#watchers.push({ when: () => this.answered.length >= n, done: () => done(this.answered[n - 1]) });
    });
  }

  /** Resolves when so many events have come in, over all responses. */
  received(n) {
    return new Promise(done => {
      if (this.frames >= n) done();
      else this.#watchers.push({ when: () => this.frames >= n, done });
    });
  }

  #check() {
    this.#watchers = this.#watchers.filter(w => {
      if (!w.when()) return true;
      w.done();
      return false;
    });
  }

  fetch = async (input, init = {}) => {
    this.requests.push({ url: String(input), method: init.method ?? 'GET', headers: new Headers(init.headers), body: init.body });
    if (this.requests.length > 1) await this.hold;
    const ours = new AbortController();
    const signal = init.signal ? AbortSignal.any([init.signal, ours.signal]) : ours.signal;
    const response = await fetch(input, { ...init, signal }).catch(error => {
      if (init.signal?.aborted) throw error;
      throw new TypeError('fetch failed');
    });
    this.answered.push(response);
    this.#check();
    if (!response.body || !(response.headers.get('content-type') ?? '').startsWith('text/event-stream')) return response;

    const cutAfter = this.cutAfter;
    this.cutAfter = undefined;
    const events = eventsOf(response.body);
    let passed = 0;
    const body = new ReadableStream(
      {
        pull: async controller => {
          const cut = () => {
            ours.abort();
            this.#cut();
            controller.error(new TypeError('network error'));
          };
          if (passed === cutAfter && !this.torn) return cut();
          let next;
          try {
            next = await events.next();
          } catch {
            if (init.signal?.aborted) controller.error(init.signal.reason);
            else controller.error(new TypeError('network error'));
            return;
          }
          if (next.done) {
            controller.close();
            return;
          }
          if (passed === cutAfter && next.value.isData) {
            const bytes = new TextEncoder().encode(next.value.raw);
            controller.enqueue(bytes.slice(0, bytes.length >> 1));
            return cut();
          }
          if (next.value.isData) {
            passed++;
            this.frames++;
            if (next.value.id !== undefined) this.lastID = next.value.id;
            this.ids.push(next.value.id);
          }
          controller.enqueue(new TextEncoder().encode(next.value.raw));
          this.#check();
        },
        cancel: () => ours.abort(),
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { status: response.status, headers: response.headers });
  };
}

async function* eventsOf(body) {
  let rest = '';
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    rest += text;
    for (let at = rest.indexOf('\n\n'); at >= 0; at = rest.indexOf('\n\n')) {
      const raw = rest.slice(0, at + 2);
      rest = rest.slice(at + 2);
      yield { raw, isData: /^data:/m.test(raw), id: /^id: ?(.*)$/m.exec(raw)?.[1] };
    }
  }
}
