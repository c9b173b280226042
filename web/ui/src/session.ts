import { Chat } from '@ai-sdk/react';
import { isResyncError, loadSnapshot, RequestError, ResumableChatTransport, stop, type ConnectionState } from '@spool-run/client';
import { loadStreamInfo, newID, postAnswer, type Message } from './api';

export interface SessionState {
  /** `loading` until the first snapshot is here. */
  phase: 'loading' | 'ready' | 'failed';
  connection: ConnectionState;
  /** Why the last request failed, for a banner. */
  problem: string | undefined;
  stopping: boolean;
  title: string | undefined;
  /** A message that the server did not take, back for the composer. */
  returned: string | undefined;
}

const pollEvery = 2_500;

/** Why an answer to a call did not count. */
const refusals: Record<string, string> = {
  already_answered: 'Another answer came first.',
  too_late: 'Too late: the call is settled.',
  not_waiting: 'Nobody waits for this answer any more.',
};

/**
 * One open session: its Chat, where the page stands in its log, and how the
 * two come back together when the network, the server or another tab moved on.
 */
export class Session {
  readonly id: string;
  readonly chat: Chat<Message>;
  readonly #api: string;
  readonly #tabs: BroadcastChannel;
  #state: SessionState;
  #listeners = new Set<() => void>();
  #position = 0;
  #incarnation: number | undefined;
  #resumeAt: number | undefined;
  #sent: { id: string; text: string } | undefined;
  #loading: Promise<void> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #open = false;
  /** Called when a turn began or ended, for the list of sessions. */
  onTurn: (() => void) | undefined;

  constructor(id: string, fresh: boolean) {
    this.id = id;
    this.#api = `/api/chat/${encodeURIComponent(id)}`;
    this.#state = {
      phase: fresh ? 'ready' : 'loading',
      connection: 'live',
      problem: undefined,
      stopping: false,
      title: undefined,
      returned: undefined,
    };
    this.#tabs = new BroadcastChannel(`spool:${id}`);
    this.#tabs.onmessage = () => void this.sync();
    this.chat = new Chat<Message>({
      id,
      generateId: newID,
      transport: new ResumableChatTransport<Message>({
        api: this.#api,
        resumeFromSequence: () => this.#resumeAt,
        onState: connection => this.#set({ connection }),
        onPosition: id => {
          const at = /^(\d+)(?:\.\d+)?$/.exec(id);
          if (at) this.#position = Math.max(this.#position, Number(at[1]));
        },
      }),
      onError: error => void this.#failed(error),
      onFinish: () => {
        this.#resumeAt = undefined;
        this.#set({ stopping: false });
        this.#tabs.postMessage('turn');
        this.onTurn?.();
      },
    });
  }

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };
  getState = () => this.#state;

  #set(change: Partial<SessionState>) {
    this.#state = { ...this.#state, ...change };
    for (const listener of this.#listeners) listener();
  }

  get #busy() {
    return this.chat.status === 'streaming' || this.chat.status === 'submitted';
  }

  open() {
    if (this.#open) return;
    this.#open = true;
    document.addEventListener('visibilitychange', this.#seen);
    addEventListener('online', this.#seen);
    if (this.#state.phase === 'loading') void this.load();
    this.#schedule();
  }

  close() {
    this.#open = false;
    clearTimeout(this.#timer);
    document.removeEventListener('visibilitychange', this.#seen);
    removeEventListener('online', this.#seen);
    this.#tabs.close();
    this.#set({ connection: 'live' });
    void this.chat.stop(); // leaves the stream; the run goes on
  }

  #seen = () => {
    if (document.visibilityState === 'visible') void this.sync();
  };

  #schedule() {
    clearTimeout(this.#timer);
    if (!this.#open) return;
    this.#timer = setTimeout(async () => {
      if (document.visibilityState === 'visible') await this.sync();
      this.#schedule();
    }, pollEvery);
  }

  /** Looks whether the session went on without this page, and follows. */
  async sync(): Promise<void> {
    if (!this.#open || this.#busy || this.#loading) return;
    try {
      const info = await loadStreamInfo(this.id);
      if (!this.#open) return;
      if (this.#state.connection !== 'live') this.#set({ connection: 'live' });
      if (this.#busy || this.#loading || info === null) return;
      const moved = (info.latestSequence ?? 0) > this.#position;
      const other = this.#incarnation !== undefined && info.incarnation !== undefined && info.incarnation !== this.#incarnation;
      if (moved || other || this.#state.phase === 'failed') await this.load();
    } catch {
      if (this.#open) this.#set({ connection: navigator.onLine ? 'reconnecting' : 'offline' });
    }
  }

  /** Brings the page to what the log holds, and follows a run that is at work. */
  load(): Promise<void> {
    this.#loading ??= this.#load().finally(() => {
      this.#loading = undefined;
    });
    return this.#loading;
  }

  async #load(): Promise<void> {
    let snapshot;
    try {
      snapshot = await loadSnapshot<Message>({ api: this.#api });
    } catch (error) {
      if (!this.#open) return;
      // Without an answer the next look tries again.
      const refused = error instanceof RequestError && error.status < 500;
      this.#set({
        phase: this.#state.phase === 'ready' ? 'ready' : refused ? 'failed' : 'loading',
        connection: refused ? 'live' : navigator.onLine ? 'reconnecting' : 'offline',
        problem: refused ? error.message : undefined,
      });
      this.#position = -1;
      return;
    }
    if (!this.#open) return;
    const messages = snapshot?.messages ?? [];
    const live = snapshot?.status === 'active';
    const last = this.chat.messages.at(-1);
    // The running answer is not in the snapshot. Where the page shows it already, it stays until the replay takes its place.
    if (live && last?.role === 'assistant' && last.id === snapshot?.existingMessageId && !messages.some(m => m.id === last.id)) {
      messages.push(last);
    }
    this.#position = snapshot?.streamSequence ?? 0;
    this.#incarnation = snapshot?.incarnation;
    this.chat.messages = messages;
    if (this.chat.status === 'error') this.chat.clearError();
    this.#set({ phase: 'ready', connection: 'live', title: snapshot?.title || undefined });
    if (this.#sent && !messages.some(m => m.id === this.#sent?.id)) this.#set({ returned: this.#sent.text });
    this.#sent = undefined;
    if (live) {
      this.#resumeAt = this.#position;
      void this.chat.resumeStream();
    }
  }

  async #failed(error: Error): Promise<void> {
    this.#set({ stopping: false });
    if (!this.#open) return;
    if (isResyncError(error)) {
      await this.load();
      return;
    }
    // An answer that failed says so itself; what remains are refused requests.
    const last = this.chat.messages.at(-1);
    if (last?.role === 'assistant' && last.parts.some(p => p.type === 'data-error')) return;
    const { code, message } = explain(error);
    this.#set({ problem: message, connection: 'live' });
    if (last?.role === 'user' || code === 'busy') await this.load();
  }

  send(text: string, messageId?: string) {
    const id = messageId ?? newID();
    this.#sent = { id, text };
    this.#set({ problem: undefined, returned: undefined });
    // An id in the message itself makes a repeated POST the same message.
    void this.chat
      .sendMessage(messageId === undefined ? { id, role: 'user', parts: [{ type: 'text', text }] } : { text, messageId })
      .catch(error => this.#failed(error));
    this.#announce();
  }

  regenerate(messageId: string) {
    this.#set({ problem: undefined });
    void this.chat.regenerate({ messageId }).catch(error => this.#failed(error));
    this.#announce();
  }

  /** Tells other tabs once the server has taken the turn. */
  #announce() {
    const stopWatching = this.chat['~registerStatusCallback'](() => {
      if (this.chat.status === 'submitted') return;
      stopWatching();
      if (this.chat.status === 'streaming') this.#tabs.postMessage('turn');
      this.onTurn?.();
    });
  }

  /** Asks the server to stop; the stream then ends by itself. */
  async stop(): Promise<void> {
    this.#set({ stopping: true });
    try {
      await stop({ api: this.#api });
    } catch (error) {
      this.#set({ stopping: false, problem: `Stop failed: ${(error as Error).message}` });
    }
  }

  /** Decides on a call that waits for approval. Returns why it did not count, if so. */
  decide = (approvalId: string, approved: boolean) => this.#answer('approvals', approvalId, { approved });

  /** Gives the outcome of a call that the client executes. Returns why it did not count, if so. */
  submit = (callId: string, output: unknown) => this.#answer('tools', callId, { output });

  async #answer(kind: 'approvals' | 'tools', id: string, body: unknown): Promise<string | undefined> {
    let refused: string | undefined;
    try {
      await postAnswer(this.id, kind, id, body);
      this.#tabs.postMessage('turn');
      this.onTurn?.();
    } catch (error) {
      const { code, message } = explain(error as Error);
      if (code === undefined) return `Not sent: ${message}`;
      refused = refusals[code] ?? message;
    }
    // A look that began before the answer may not show it.
    await this.#loading;
    if (this.#open && !this.#busy) await this.load();
    return refused;
  }

  dismiss = () => this.#set({ problem: undefined });
  took = () => this.#set({ returned: undefined });
}

function explain(error: Error): { code?: string; message: string } {
  try {
    const problem = JSON.parse(error.message) as Record<string, unknown>;
    const message = [problem.message, problem.detail, problem.error].find(v => typeof v === 'string' && v !== '') as string | undefined;
    return { ...(typeof problem.code === 'string' && { code: problem.code }), message: message ?? 'The request failed.' };
  } catch {
    return { message: error.message || 'The request failed.' };
  }
}
