import { Chat } from '@ai-sdk/react';
import { interrupt, isConnectionLost, isResyncError, loadSnapshot, RequestError, ResumableChatTransport, resume, shouldResume, stop, SubAgentTracker, type ConnectionState, type Resume } from '@spool-run/client';
import { base, chatAPI, loadStreamInfo, newID, postAnswer, postMessage, type Message } from './api';
import { asShown, overtakes } from './recovery';
import { checkpointsOf, noTimeline, ofSnapshot, type Timeline } from './timeline';

/** What a message does that is sent while a run is at work. */
export type WhenBusy = 'queue' | 'steer' | 'interrupt';

export interface SessionState {
  /** `loading` until the first snapshot is here. */
  phase: 'loading' | 'ready' | 'failed';
  /** A run is at work; its stream may not be here yet, while the chat still calls itself ready. */
  following: boolean;
  connection: ConnectionState;
  /** The answer's run is taken over, or its stream comes again: nothing of it is new yet. */
  recovering: boolean;
  /** The running answer as it was shown before that, until the new one says as much. */
  held: Message | undefined;
  /** Why the last request failed, for a banner. */
  problem: string | undefined;
  stopping: boolean;
  /** An interrupt is on its way to the next step boundary. */
  interrupting: boolean;
  timeline: Timeline;
  title: string | undefined;
  /** A message that the server did not take, back for the composer. */
  returned: string | undefined;
}

const pollEvery = 2_500;
const retryAfter = 250; // after a look without an answer; each further pause is half as long again

// What the stream tells of a run that another process goes on with.
const takenOver = new Set(['data-executor-superseded', 'data-step-discarded', 'data-stream-resync']);

/** Why an answer to a call did not count. */
const refusals: Record<string, string> = {
  already_answered: 'Another answer was given first.',
  too_late: 'Too late: the call is settled.',
  not_waiting: 'The run has not asked for this answer yet.',
};

/**
 * One open session: its Chat, where the page stands in its log, and how the
 * two come back together when the network, the server or another tab moved on.
 */
export class Session {
  readonly id: string;
  readonly chat: Chat<Message>;
  /** What sub-agents of the running answer are doing. */
  readonly agents = new SubAgentTracker<Message['parts'][number]>();
  /** Which of them stand open, also over replays, which begin their message again. */
  readonly unfolded = new Map<string, boolean>();
  /** Why the reader's answer to a call did not count, over the same replays. */
  readonly refused = new Map<string, string>();
  readonly #api: string;
  readonly #tabs: BroadcastChannel;
  #state: SessionState;
  #listeners = new Set<() => void>();
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
  /** Called when a turn began or ended, for the list of sessions. */
  onTurn: (() => void) | undefined;

  constructor(id: string, fresh: boolean) {
    this.id = id;
    this.#api = chatAPI(id);
    this.#state = {
      phase: fresh ? 'ready' : 'loading',
      following: false,
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
    this.#tabs = new BroadcastChannel(`spool:${base}:${id}`);
    this.#tabs.onmessage = () => void this.sync();
    this.chat = new Chat<Message>({
      id,
      generateId: newID,
      transport: new ResumableChatTransport<Message>({
        api: this.#api,
        resumeFromSequence: () => this.#resumeAt,
        onState: connection => this.#connected(connection),
        onPosition: id => {
          const at = /^(\d+)(?:\.\d+)?$/.exec(id);
          if (at) this.#position = Math.max(this.#position, Number(at[1]));
        },
      }),
      onError: error => void this.#failed(error),
      onData: part => {
        this.agents.take(part);
        if (takenOver.has(part.type)) this.#recover();
        if (part.type === 'data-checkpoint-created') void this.#lookBack();
      },
      onFinish: ({ isAbort, isDisconnect, isError }) => {
        this.#resumeAt = undefined;
        this.#set({ stopping: false, interrupting: false });
        this.#tabs.postMessage('turn');
        this.onTurn?.();
        if (!isDisconnect && !isError) this.#release();
        if (!isAbort && !isDisconnect && !isError) void this.#ended();
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
    return this.#state.following || this.chat.status === 'streaming' || this.chat.status === 'submitted';
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
    this.#release();
    void this.chat.stop(); // leaves the stream; the run goes on
  }

  #seen = () => {
    if (document.visibilityState === 'visible') void this.sync();
  };

  #schedule() {
    clearTimeout(this.#timer);
    if (!this.#open) return;
    const retry = Math.min(pollEvery, retryAfter * 1.5 ** (this.#misses - 1)) * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(async () => {
      if (document.visibilityState === 'visible') await this.sync();
      this.#schedule();
    }, this.#misses > 0 ? retry : pollEvery);
  }

  /** Looks whether the session went on without this page, and follows. */
  async sync(): Promise<void> {
    if (!this.#open || this.#loading) return;
    try {
      const info = await loadStreamInfo(this.id);
      this.#misses = 0;
      if (!this.#open) return;
      if (this.#busy && info !== null && (info.waiting ?? 0) !== this.#waiting) await this.#lookAhead(info.waiting ?? 0);
      if (this.#busy) return;
      if (this.#state.connection !== 'live') this.#set({ connection: 'live' });
      if (this.#busy || this.#loading || info === null) return;
      const moved = (info.latestSequence ?? 0) > this.#position;
      const other = this.#incarnation !== undefined && info.incarnation !== undefined && info.incarnation !== this.#incarnation;
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
    const snapshot = await loadSnapshot<Message>({ api: this.#api });
    if (this.#open && this.#busy) this.#set({ timeline: { ...this.#state.timeline, waiting: ofSnapshot(snapshot).waiting } });
  }

  /** The checkpoints that one can go back to. Without them nothing else is lost. */
  async #lookBack(): Promise<void> {
    const checkpoints = await checkpointsOf(this.#api).catch(() => undefined);
    if (this.#open && checkpoints) this.#set({ timeline: { ...this.#state.timeline, checkpoints } });
  }

  /** An answer came to its end: what waited behind it is next. */
  async #ended(): Promise<void> {
    await Promise.resolve(); // the chat is still finishing
    const info = await loadStreamInfo(this.id).catch(() => null);
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
      snapshot = await loadSnapshot<Message>({ api: this.#api });
    } catch (error) {
      if (!this.#open) return;
      // Without an answer the next look tries again.
      const refused = error instanceof RequestError && error.status < 500;
      this.#set({
        phase: this.#state.phase === 'ready' ? 'ready' : refused ? 'failed' : 'loading',
        connection: refused ? 'live' : this.#unreachable(),
        problem: refused ? error.message : undefined,
      });
      this.#position = -1;
      return;
    }
    if (!this.#open) return;
    this.#lost = false;
    const messages = snapshot?.messages ?? [];
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
    this.#set({ phase: 'ready', following: live, connection: 'live', title: snapshot?.title || undefined, timeline });
    if (snapshot?.checkpointId) void this.#lookBack();
    if (this.#sent && ![...messages, ...timeline.waiting].some(m => m.id === this.#sent?.id)) this.#set({ returned: this.#sent.text });
    this.#sent = undefined;
    // A pause may be over by now. Only of a run at work it is known that its answer will come.
    if (shouldResume(snapshot)) {
      this.#resumeAt = this.#position;
      const stream = this.chat.resumeStream().finally(() => {
        if (this.#stream === stream) this.#set({ following: false });
      });
      this.#stream = stream;
    }
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

  /** Says something while an answer is written. */
  async sendNow(text: string, whenBusy: WhenBusy): Promise<void> {
    const message: Message = { id: newID(), role: 'user', parts: [{ type: 'text', text }] };
    this.#set({ problem: undefined, timeline: { ...this.#state.timeline, waiting: [...this.#state.timeline.waiting, { ...message, whenBusy }] } });
    try {
      await postMessage(this.id, message, whenBusy);
      this.#tabs.postMessage('waiting');
      if (!this.#busy) await this.load(); // it ended in this very moment
    } catch (error) {
      const waiting = this.#state.timeline.waiting.filter(m => m.id !== message.id);
      this.#set({ problem: explain(error as Error).message, returned: text, timeline: { ...this.#state.timeline, waiting } });
    }
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

  /** Asks the server to pause at the next step boundary; the stream then ends by itself. */
  async interrupt(): Promise<void> {
    this.#set({ interrupting: true });
    try {
      await interrupt({ api: this.#api });
    } catch (error) {
      this.#set({ interrupting: false, problem: `Pause failed: ${(error as Error).message}` });
    }
  }

  continue = () => this.#resume({ mode: 'continue' });
  retry = () => this.#resume({ mode: 'retry' });
  rewind = (checkpointId: string) => this.#resume({ mode: 'from_checkpoint', checkpointId });

  async #resume(how: Resume): Promise<void> {
    this.#set({ problem: undefined });
    try {
      await resume({ api: this.#api }, { ...how, commandId: newID() });
      this.#tabs.postMessage('turn');
      this.onTurn?.();
    } catch (error) {
      this.#set({ problem: (error as Error).message });
    }
    await this.#loading;
    if (this.#open && !this.#busy) await this.load();
  }

  /** Makes a new session of what this one was at a checkpoint, and returns its id. */
  async branch(checkpointId: string): Promise<string | undefined> {
    this.#set({ problem: undefined });
    try {
      return (await resume({ api: this.#api }, { mode: 'branch', checkpointId, commandId: newID() })).sessionId;
    } catch (error) {
      this.#set({ problem: `Branching failed: ${(error as Error).message}` });
      return undefined;
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
      if (code === undefined) return `Sending failed: ${message}`;
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
