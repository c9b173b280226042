import { Chat } from '@ai-sdk/react';
import {
  decide,
  interrupt,
  isConnectionLost,
  isResyncError,
  loadInfo,
  loadSnapshot,
  newID,
  RequestError,
  ResumableChatTransport,
  resume,
  sendWhileBusy,
  shouldResume,
  stop,
  submitToolResult,
  SubAgentTracker,
  type CommandRequest,
  type ConnectionState,
  type Resume,
  type ResumableChatTransportOptions,
  type Snapshot,
  type WaitingMessage,
} from '@spool-run/client';
import type { ChatInit, FileUIPart, UIMessage } from 'ai';
import { asShown, overtakes } from './recovery.js';
import { checkpointsOf, noTimeline, ofSnapshot, type Timeline } from './timeline.js';

/** What a message does that is sent while a run is at work. */
export type WhenBusy = WaitingMessage['whenBusy'];

export interface ChatSessionOptions<Message extends UIMessage = UIMessage>
  extends Pick<ResumableChatTransportOptions, 'headers' | 'body' | 'credentials' | 'fetch' | 'maxRetries' | 'joinWithin'>,
    Pick<ChatInit<Message>, 'onData' | 'onError' | 'onFinish' | 'onToolCall' | 'sendAutomaticallyWhen' | 'generateId' | 'messageMetadataSchema' | 'dataPartSchemas'> {
  /** The session's endpoint, such as `/api/chat/my-session`. */
  api: string;
  /** The chat's id. Default: the last segment of `api`. */
  id?: string;
  /** The session's snapshot, if the page was rendered with it. null: there is no such session yet. Without it, `open` loads it. */
  snapshot?: Snapshot<Message> | null;
  /** How often a visible page looks whether the session went on without it. Milliseconds, default 2,500. */
  pollInterval?: number;
  /** Called when a turn began or ended. */
  onTurn?: () => void;
}

export interface ChatSessionState<Message extends UIMessage = UIMessage> {
  /** `loading` until the first snapshot is here; `failed` if the server refuses it. */
  phase: 'loading' | 'ready' | 'failed';
  /** As the chat's own status, and `submitted` also while the stream of a run is awaited. */
  status: 'submitted' | 'streaming' | 'ready' | 'error';
  connection: ConnectionState;
  /** The answer's run is taken over, or its stream comes again: nothing of it is new yet. */
  recovering: boolean;
  /** The running answer as it was shown before that, until the new one says as much. */
  held: Message | undefined;
  /** Why the last request failed. */
  problem: { message: string; code?: string } | undefined;
  /** A stop was asked for, and has not taken effect. */
  stopping: boolean;
  /** An interrupt is on its way to the next step boundary. */
  interrupting: boolean;
  timeline: Timeline<Message>;
  title: string | undefined;
  /** A message that the server did not take, back for the composer. */
  returned: string | undefined;
}

const retryAfter = 250; // after a look without an answer; each further pause is half as long again

// What the stream tells of a run that another process goes on with.
const takenOver = new Set(['data-executor-superseded', 'data-step-discarded', 'data-stream-resync']);

/**
 * One open session: its Chat, where the page stands in its log, and how the two come back
 * together when the network, the server, another tab or another device moved on.
 *
 * It begins with `open` and ends with `close`; the hook `useSession` calls both.
 */
export class ChatSession<Message extends UIMessage = UIMessage> {
  readonly id: string;
  readonly api: string;
  readonly chat: Chat<Message>;
  /** What sub-agents of the running answer are doing. */
  readonly agents = new SubAgentTracker<Message['parts'][number]>();
  readonly #options: ChatSessionOptions<Message>;
  readonly #request: CommandRequest;
  readonly #newID: () => string;
  #tabs: BroadcastChannel | undefined;
  #state: ChatSessionState<Message>;
  #listeners = new Set<() => void>();
  #following = false; // a run is at work, though its stream may not be here
  #position = 0;
  #incarnation: number | undefined;
  #resumeAt: number | undefined;
  #waiting = 0;
  #misses = 0; // looks in a row without an answer
  #away = false; // the server did not answer
  #over = false; // nothing more will come of the answer that is held
  #lost = false; // the last answer to a request was that there is none, too often
  #sent: { id: string; text: string } | undefined;
  #loading: Promise<void> | undefined;
  #stream: Promise<void> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #open = false;
  /** Called when a turn began or ended. */
  onTurn: (() => void) | undefined;

  constructor(options: ChatSessionOptions<Message>) {
    this.#options = options;
    this.api = options.api.replace(/\/$/, '');
    this.id = options.id ?? decodeURIComponent(this.api.slice(this.api.lastIndexOf('/') + 1));
    this.#newID = options.generateId ?? newID;
    this.onTurn = options.onTurn;
    this.#request = { api: this.api, ...pick(options, ['headers', 'credentials', 'fetch']) };
    this.#state = {
      phase: options.snapshot === undefined ? 'loading' : 'ready',
      status: 'ready',
      connection: 'live',
      recovering: false,
      held: undefined,
      problem: undefined,
      stopping: false,
      interrupting: false,
      timeline: noTimeline,
      title: undefined,
      returned: undefined,
    };
    this.chat = new Chat<Message>({
      ...pick(options, ['onToolCall', 'sendAutomaticallyWhen', 'messageMetadataSchema', 'dataPartSchemas']),
      id: this.id,
      generateId: this.#newID,
      transport: new ResumableChatTransport<Message>({
        ...pick(options, ['headers', 'body', 'credentials', 'fetch', 'maxRetries', 'joinWithin']),
        api: this.api,
        resumeFromSequence: () => this.#resumeAt,
        onState: connection => this.#connected(connection),
        onPosition: id => {
          const at = /^(\d+)(?:\.\d+)?$/.exec(id);
          if (at) this.#position = Math.max(this.#position, Number(at[1]));
        },
      }),
      onError: error => {
        options.onError?.(error);
        void this.#failed(error);
      },
      onData: part => {
        this.agents.take(part);
        if (takenOver.has(part.type)) this.#recover();
        if (part.type === 'data-checkpoint-created') void this.#lookBack();
        options.onData?.(part);
      },
      onFinish: end => {
        this.#resumeAt = undefined;
        this.#set({ stopping: false, interrupting: false });
        this.#announce();
        if (!end.isDisconnect && !end.isError) this.#release();
        if (!end.isAbort && !end.isDisconnect && !end.isError) void this.#ended();
        options.onFinish?.(end);
      },
    });
    this.chat['~registerStatusCallback'](() => this.#set({}));
    if (options.snapshot !== undefined) this.#take(options.snapshot);
  }

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  };
  getState = () => this.#state;

  #set(change: Partial<ChatSessionState<Message>>) {
    const status = this.#following && this.chat.status === 'ready' ? 'submitted' : this.chat.status;
    const next = { ...this.#state, ...change, status };
    if ((Object.keys(next) as (keyof typeof next)[]).every(k => Object.is(next[k], this.#state[k]))) return;
    this.#state = next;
    for (const listener of this.#listeners) listener();
  }

  get #busy() {
    return this.#following || this.chat.status === 'streaming' || this.chat.status === 'submitted';
  }

  /** Begins to follow the session. */
  open() {
    if (this.#open) return;
    this.#open = true;
    document.addEventListener('visibilitychange', this.#seen);
    addEventListener('online', this.#seen);
    addEventListener('pageshow', this.#seen);
    this.#tabs = new BroadcastChannel(`spool:${new URL(this.api, document.baseURI).href}`);
    this.#tabs.onmessage = () => void this.sync();
    if (this.#state.phase === 'loading') void this.load();
    else this.#follow(this.#options.snapshot ?? null);
    this.#schedule();
  }

  /** Ends that. The run goes on; the session can be opened again. */
  close() {
    if (!this.#open) return;
    this.#open = false;
    clearTimeout(this.#timer);
    document.removeEventListener('visibilitychange', this.#seen);
    removeEventListener('online', this.#seen);
    removeEventListener('pageshow', this.#seen);
    this.#tabs?.close();
    this.#tabs = undefined;
    this.#following = false;
    this.#position = -1; // whatever the log holds by then is news
    this.#set({ connection: 'live' });
    this.#release();
    void this.chat.stop();
  }

  #seen = () => {
    if (document.visibilityState === 'visible') void this.sync();
  };

  #schedule() {
    clearTimeout(this.#timer);
    if (!this.#open) return;
    const every = this.#options.pollInterval ?? 2_500;
    const retry = Math.min(every, retryAfter * 1.5 ** (this.#misses - 1)) * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(
      async () => {
        if (document.visibilityState === 'visible') await this.sync();
        this.#schedule();
      },
      this.#misses > 0 ? retry : every,
    );
  }

  /** Looks whether the session went on without this page, and follows. */
  async sync(): Promise<void> {
    if (!this.#open || this.#loading) return;
    try {
      const info = await loadInfo(this.#request);
      this.#misses = 0;
      if (!this.#open) return;
      if (this.#busy && info !== null && info.waiting !== this.#waiting) await this.#lookAhead(info.waiting);
      if (this.#busy) return;
      if (this.#state.connection !== 'live') this.#set({ connection: 'live' });
      if (this.#busy || this.#loading || info === null) return;
      const moved = info.latestSequence > this.#position;
      const other = this.#incarnation !== undefined && info.incarnation !== this.#incarnation;
      if (moved || other || this.#state.phase === 'failed') await this.load();
    } catch {
      this.#misses++;
      if (this.#open) this.#set({ connection: this.#unreachable() });
    }
  }

  #unreachable(): ConnectionState {
    return this.#lost ? 'lost' : navigator.onLine ? 'reconnecting' : 'offline';
  }

  /** Keeps what the page shows of the running answer until what comes says as much. */
  #hold() {
    const last = this.chat.messages.at(-1);
    if (last?.role !== 'assistant') return;
    const { held } = this.#state;
    if (held?.id === last.id && !overtakes(last, held)) return;
    this.#over = false;
    this.#set({ held: asShown(last, this.agents) });
  }

  #recover() {
    this.#hold();
    this.#over = false;
    if (this.#state.held && !this.#state.recovering) this.#set({ recovering: true });
  }

  /** The answer is over: what is held is let go as soon as the page shows its end. */
  #release() {
    this.#over = true;
    if (this.#state.recovering) this.#set({ recovering: false });
  }

  /** Takes note of the answer as the page shows it, which may be somewhat later than it is here. */
  shows(last: Message | undefined) {
    const { held } = this.#state;
    if (!held) return;
    const over = this.#over && last === this.chat.messages.at(-1);
    if (over || (last?.id === held.id && overtakes(last, held))) this.#set({ held: undefined, recovering: false });
  }

  #connected(connection: ConnectionState) {
    if (connection !== 'live') {
      if (this.#busy) this.#hold();
      // Without a network it is not the server that was away.
      this.#away = connection === 'reconnecting';
    } else if (this.#away) {
      this.#away = false;
      if (this.#busy && this.#state.held) this.#recover();
    }
    this.#set({ connection });
  }

  /** Tries again by hand, after the connection was given up. */
  reconnect = () => {
    this.#set({ connection: 'reconnecting' });
    void this.load();
  };

  /** What the stream does not tell: that a message waits behind the run. */
  async #lookAhead(waiting: number): Promise<void> {
    this.#waiting = waiting;
    const snapshot = await loadSnapshot<Message>(this.#request);
    if (this.#open && this.#busy) this.#set({ timeline: { ...this.#state.timeline, waiting: ofSnapshot(snapshot).waiting } });
  }

  /** The checkpoints that one can go back to. Without them nothing else is lost. */
  async #lookBack(): Promise<void> {
    const checkpoints = await checkpointsOf(this.#request).catch(() => undefined);
    if (this.#open && checkpoints) this.#set({ timeline: { ...this.#state.timeline, checkpoints } });
  }

  /** An answer came to its end: what waited behind it is next. */
  async #ended(): Promise<void> {
    await Promise.resolve(); // the chat is still finishing
    const info = await loadInfo(this.#request).catch(() => null);
    if (!this.#open || this.#busy) return;
    if (this.#state.timeline.waiting.length > 0 || (info?.waiting ?? 0) > 0 || info?.status === 'active') await this.load();
    else await this.#lookBack();
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
      snapshot = await loadSnapshot<Message>(this.#request);
    } catch (error) {
      if (!this.#open) return;
      // Without an answer the next look tries again.
      const refused = error instanceof RequestError && error.status < 500;
      this.#set({
        phase: this.#state.phase === 'ready' ? 'ready' : refused ? 'failed' : 'loading',
        connection: refused ? 'live' : this.#unreachable(),
        problem: refused ? explain(error) : undefined,
      });
      this.#position = -1;
      return;
    }
    if (!this.#open) return;
    this.#lost = false;
    this.#take(snapshot);
    this.#follow(snapshot);
  }

  /** Shows a snapshot. */
  #take(snapshot: Snapshot<Message> | null) {
    const messages = [...(snapshot?.messages ?? [])];
    const live = snapshot?.status === 'active';
    const last = this.chat.messages.at(-1);
    // The running answer is not in the snapshot. Where the page shows it already, it stays until the replay takes its place.
    if (live && last?.role === 'assistant' && last.id === snapshot?.existingMessageId && !messages.some(m => m.id === last.id)) {
      messages.push(last);
      this.#hold();
    } else {
      this.#release();
    }
    this.#position = snapshot?.streamSequence ?? 0;
    this.#incarnation = snapshot?.incarnation;
    this.agents.clear();
    this.chat.messages = messages;
    if (this.chat.status === 'error') this.chat.clearError();
    const timeline = { ...this.#state.timeline, ...ofSnapshot(snapshot) };
    this.#waiting = timeline.waiting.length;
    this.#following = live;
    this.#set({ phase: 'ready', connection: 'live', title: snapshot?.title || undefined, timeline });
    if (this.#sent && ![...messages, ...timeline.waiting].some(m => m.id === this.#sent?.id)) this.#set({ returned: this.#sent.text });
    this.#sent = undefined;
  }

  #follow(snapshot: Snapshot<Message> | null) {
    if (this.#position < 0) return void this.load(); // it was closed meanwhile
    if (snapshot?.checkpointId) void this.#lookBack();
    // A pause may be over by now. Only of a run at work it is known that its answer will come.
    if (!shouldResume(snapshot)) return;
    this.#resumeAt = this.#position;
    const stream = this.chat.resumeStream().finally(() => {
      if (this.#stream !== stream) return;
      this.#following = false;
      this.#set({});
    });
    this.#stream = stream;
  }

  async #failed(error: Error): Promise<void> {
    this.#set({ stopping: false });
    if (!this.#open) return;
    if (isResyncError(error)) {
      this.#recover();
      await this.load();
      return;
    }
    if (isConnectionLost(error)) {
      this.#lost = true;
      this.#position = -1; // whatever the log holds by then is news
      this.#set({ connection: 'lost', recovering: false });
      return;
    }
    this.#release();
    // An answer that failed says so itself; what remains are refused requests.
    const last = this.chat.messages.at(-1);
    if (last?.role === 'assistant' && last.parts.some(p => p.type === 'data-error')) return;
    const problem = explain(error);
    this.#set({ problem, connection: 'live' });
    if (this.#sent || last?.role === 'user') await this.load(); // what the server did not take comes back
  }

  /**
   * Sends a message, or sends an earlier one again with another text (`messageId`), which
   * rewinds the session to it. While a run is at work, `whenBusy` says what becomes of both;
   * by default the message waits (`queue`).
   */
  send(text: string, options: { messageId?: string; files?: FileUIPart[]; whenBusy?: WhenBusy } = {}): void {
    // What is being loaded would take the message's place.
    if (this.#loading) return void this.#loading.then(() => this.send(text, options));
    const { messageId, files = [], whenBusy = 'queue' } = options;
    if (this.#busy && messageId === undefined) return void this.#sendWhileBusy(text, files, whenBusy);
    const id = messageId ?? this.#newID();
    this.#sent = { id, text };
    this.#set({ problem: undefined, returned: undefined });
    // An id in the message itself makes a repeated POST the same message.
    const message = messageId === undefined ? this.#message(id, text, files) : { text, files, messageId };
    void this.chat.sendMessage(message as Parameters<Chat<Message>['sendMessage']>[0]).catch((error: Error) => this.#failed(error));
    this.#begins();
  }

  #message(id: string, text: string, files: FileUIPart[]): Message {
    return { id, role: 'user', parts: [...files, { type: 'text', text }] } as unknown as Message;
  }

  async #sendWhileBusy(text: string, files: FileUIPart[], whenBusy: WhenBusy): Promise<void> {
    const message = this.#message(this.#newID(), text, files);
    this.#set({ problem: undefined, timeline: { ...this.#state.timeline, waiting: [...this.#state.timeline.waiting, { ...message, whenBusy }] } });
    try {
      await sendWhileBusy(this.#request, message, whenBusy);
      this.#tabs?.postMessage('waiting');
      if (!this.#busy) await this.load(); // it ended in this very moment
    } catch (error) {
      const waiting = this.#state.timeline.waiting.filter(m => m.id !== message.id);
      this.#set({ problem: explain(error as Error), returned: text, timeline: { ...this.#state.timeline, waiting } });
    }
  }

  /** Has an answer written again. */
  regenerate(messageId: string): void {
    if (this.#loading) return void this.#loading.then(() => this.regenerate(messageId));
    this.#set({ problem: undefined });
    void this.chat.regenerate({ messageId }).catch((error: Error) => this.#failed(error));
    this.#begins();
  }

  #announce() {
    this.#tabs?.postMessage('turn');
    this.onTurn?.();
  }

  /** Tells other tabs once the server has taken the turn. */
  #begins() {
    const stopWatching = this.chat['~registerStatusCallback'](() => {
      if (this.chat.status === 'submitted') return;
      stopWatching();
      if (this.chat.status === 'streaming') this.#tabs?.postMessage('turn');
      this.onTurn?.();
    });
  }

  /** Asks the server to stop; the stream then ends by itself. */
  async stop(): Promise<void> {
    this.#set({ stopping: true });
    try {
      await stop(this.#request);
    } catch (error) {
      this.#set({ stopping: false, problem: { ...explain(error as Error), message: `Stop failed: ${explain(error as Error).message}` } });
    }
  }

  /** Asks the server to pause at the next step boundary; the stream then ends by itself. */
  async interrupt(): Promise<void> {
    if (this.#state.interrupting) return;
    this.#set({ interrupting: true });
    try {
      await interrupt(this.#request);
    } catch (error) {
      this.#set({ interrupting: false, problem: { ...explain(error as Error), message: `Pause failed: ${explain(error as Error).message}` } });
    }
  }

  /** Lets a paused session go on. */
  continue = () => this.#resume({ mode: 'continue' });
  /** Asks again for an answer that failed. */
  retry = () => this.#resume({ mode: 'retry' });
  /** Goes back to a checkpoint. What followed it is retracted, in every tab. */
  rewind = (checkpointId: string) => this.#resume({ mode: 'from_checkpoint', checkpointId });

  async #resume(how: Resume): Promise<void> {
    this.#set({ problem: undefined });
    try {
      await resume(this.#request, { ...how, commandId: this.#newID() });
      this.#announce();
    } catch (error) {
      this.#set({ problem: explain(error as Error) });
    }
    await this.#catchUp();
  }

  /** Looks at the log after a command of this page. */
  async #catchUp(): Promise<void> {
    await this.#loading; // a look that began before the command may not show it
    if (this.#open && !this.#busy) await this.load();
  }

  /** Makes a new session of what this one was at a checkpoint, and returns its id. */
  async branch(checkpointId: string): Promise<string | undefined> {
    this.#set({ problem: undefined });
    try {
      return (await resume(this.#request, { mode: 'branch', checkpointId, commandId: this.#newID() })).sessionId;
    } catch (error) {
      this.#set({ problem: { ...explain(error as Error), message: `Branching failed: ${explain(error as Error).message}` } });
      return undefined;
    }
  }

  /** Decides on a call that waits for approval. Rejects with a RequestError if it did not count. */
  decide = (approvalId: string, approved: boolean, reason?: string) =>
    this.#answer(decide(this.#request, approvalId, { approved, ...(reason !== undefined && { reason }) }));

  /** Gives the outcome of a call that the client executes. Rejects with a RequestError if it did not count. */
  submit = (toolCallId: string, result: { output: unknown } | { error: string }) => this.#answer(submitToolResult(this.#request, toolCallId, result));

  async #answer(sent: Promise<unknown>): Promise<void> {
    try {
      await sent;
      this.#announce();
    } finally {
      await this.#catchUp();
    }
  }

  /** Forgets the problem that was shown. */
  dismiss = () => this.#set({ problem: undefined });
  /** Forgets the message that was returned: the composer has it. */
  took = () => this.#set({ returned: undefined });
}

/** What a failed request says to its user: the AI SDK's errors have the answer's body as their message. */
function explain(error: Error): { message: string; code?: string } {
  if (error instanceof RequestError) return { message: error.message, code: error.code };
  try {
    const problem = JSON.parse(error.message) as Record<string, unknown>;
    const message = [problem['message'], problem['detail'], problem['error']].find(v => typeof v === 'string' && v !== '') as string | undefined;
    return { ...(typeof problem['code'] === 'string' && { code: problem['code'] }), message: message ?? 'The request failed.' };
  } catch {
    return { message: error.message || 'The request failed.' };
  }
}

/** The options that were given, of those that are named. */
function pick<T extends object, K extends keyof T>(from: T, names: K[]): Pick<T, K> {
  return Object.fromEntries(names.filter(k => from[k] !== undefined).map(k => [k, from[k]])) as Pick<T, K>;
}
