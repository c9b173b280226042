// Readers for tests that are written in Go: real clients that send, watch and decide in
// sessions that several servers serve, of which each request goes to any. A line of JSON on
// stdin is a job, a line on stdout is its result.
//
// A job: {id, client, servers, session, message, text, decide}. With a text it sends the
// message, else it watches; with decide it answers an approval.
import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import { createResumingFetch, isResyncError, loadSnapshot } from '@spool-run/client';
import * as clients from './lib/clients.mjs';
import { pause } from './lib/wait.mjs';

const silence = 4_000; // after which a server is taken for dead

function answer(result) {
  process.stdout.write(`${JSON.stringify(result)}\n`);
}

class Reader {
  #job;
  #client;
  #fetch;
  #position; // of the snapshot that the chat was built from
  #chat;
  #errors;
  #reloads = 0;
  #decisions = 0;

  constructor(job) {
    this.#job = job;
    this.#client = clients[job.client];
    const anyServer = toAny(job.servers);
    const resuming = createResumingFetch({ fetch: anyServer, idleTimeout: silence, minDelay: 20, maxDelay: 200, maxRetries: Infinity });
    this.#fetch = (input, init = {}) => {
      const attaches = (init.method ?? 'GET') === 'GET' && this.#position !== undefined;
      const headers = attaches ? { ...init.headers, 'X-Resume-From-Sequence': String(this.#position) } : init.headers;
      return resuming(input, { ...init, headers });
    };
  }

  /** Reads to the end of the turn, and compares what the chat shows with the snapshot. */
  async read() {
    const { session, message, text, decide } = this.#job;
    if (text === undefined) await this.#reload();
    else {
      this.#open([]);
      await this.#chat.sendMessage(clients.userMessage(message, text));
    }
    for (;;) {
      const again = this.#errors.filter(isResyncError);
      if (again.length < this.#errors.length) throw new AggregateError(this.#errors, `${session}: ${this.#errors.map(String).join('; ')}`);
      if (again.length > 0) {
        await this.#reload();
        continue;
      }
      const snapshot = await this.#snapshot();
      const asked = this.#asked();
      if (snapshot.status === 'paused' && asked && decide && this.#decisions === 0) await this.#decide(asked);
      else if (snapshot.status === 'paused') await pause(100);
      // The chat's stream has ended at the pause, or before another reader's decision.
      else if (snapshot.status === 'active' || asked) await this.#reload();
      else return this.#compare(snapshot);
    }
  }

  #open(messages) {
    const { session } = this.#job;
    const { chat, errors } = clients.open(this.#client, { url: 'http://spool', session, fetch: this.#fetch, messages });
    this.#chat = chat;
    this.#errors = errors;
  }

  /** A page that is loaded again. */
  async #reload() {
    this.#reloads++;
    const snapshot = await this.#snapshot();
    this.#position = snapshot.streamSequence;
    this.#open(snapshot.messages);
    await this.#chat.resumeStream();
  }

  /** The part that waits for an approval. */
  #asked() {
    return this.#chat.messages.at(-1)?.parts.find(p => p.state === 'approval-requested');
  }

  async #decide(part) {
    this.#decisions++;
    await this.#chat.addToolApprovalResponse({ id: part.approval.id, approved: true });
    await this.#chat.sendMessage();
  }

  async #snapshot() {
    for (;;) {
      try {
        const api = `http://spool/api/chat/${encodeURIComponent(this.#job.session)}`;
        const snapshot = await loadSnapshot({ api, fetch: toAny(this.#job.servers) });
        if (snapshot) return snapshot;
      } catch (error) {
        if (!(error instanceof TypeError) && error.status !== 503) throw error;
      }
      await pause(50);
    }
  }

  #compare(snapshot) {
    const [shown, held] = [this.#chat, snapshot].map(from => clients.answers(from, this.#client));
    // Streams for version 6 of the client do not tell of decisions: only the page that decided
    // knows, until it is loaded again.
    if (!this.#decisions || this.#reloads) for (const part of [...shown, ...held].flatMap(m => m.parts)) delete part.approval?.approved;
    assert.deepEqual(shown, held);
    return { status: snapshot.status, messages: snapshot.messages, reloads: this.#reloads, decisions: this.#decisions };
  }
}

/** A fetch that sends each request to any of the servers, as a load balancer without memory does. */
function toAny(servers) {
  return async (input, init = {}) => {
    const { pathname, search } = new URL(String(input));
    const server = servers[Math.floor(Math.random() * servers.length)];
    const ours = new AbortController();
    const head = setTimeout(() => ours.abort(), silence);
    const signal = init.signal ? AbortSignal.any([init.signal, ours.signal]) : ours.signal;
    try {
      return await fetch(new URL(pathname + search, server), { ...init, signal });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new TypeError('fetch failed');
    } finally {
      clearTimeout(head);
    }
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  new Reader(job).read().then(
    result => answer({ id: job.id, ...result }),
    error => answer({ id: job.id, error: String(error?.stack ?? error) }),
  );
}
