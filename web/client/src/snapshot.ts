import type { UIMessage } from 'ai';
import { requestError } from './errors.js';

/** The state of a session at one position of its log. */
export interface Snapshot<Message = UIMessage, State = unknown> {
  sessionId: string;
  /** `active` while a run works or waits to be started; else paused, ended or failed. */
  status: 'active' | 'paused' | 'ended' | 'failed';
  state: State | null;
  /** The conversation. While a run is active its answer is left out: it comes with the stream. */
  messages: Message[];
  /** The position; pass it on as `resumeFromSequence`. */
  streamSequence: number;
  timestamp: number;
  checkpointId: string | null;
  /** The latest checkpoint. */
  checkpoint?: { id: string; stepCount: number; streamSequence: number };
  /** The position before the latest turn. */
  startSequence?: number;
  existingMessageId?: string;
  incarnation?: number;
  title?: string;
  reason?: string;
  /** Which limit the last run has reached (`max_steps`, `max_tokens`, …), or how it failed. */
  code?: string;
  /** The messages that wait behind a run or a pause; they are not among `messages` yet. */
  waiting?: (Message & WaitingMessage)[];
  /** Where a branch came from. */
  origin?: { sessionId: string; checkpointId: string };
  /** See `StreamError.from`. */
  error?: { error?: string; message?: string; code?: string; recoverable?: boolean } | string | null;
}

/** What a message that waits says beside itself. */
export interface WaitingMessage {
  whenBusy: 'queue' | 'steer' | 'interrupt';
}

export interface SnapshotRequest {
  /** The session's endpoint, such as `/api/chat/my-session`. */
  api: string;
  fetch?: typeof fetch;
  headers?: HeadersInit;
  credentials?: RequestCredentials;
  signal?: AbortSignal;
  /** A checkpoint's id, for the state as it was then. */
  checkpoint?: string;
}

/** Loads a session's snapshot; null if there is no such session. Fails with a RequestError. */
export async function loadSnapshot<Message = UIMessage, State = unknown>(
  request: SnapshotRequest,
): Promise<Snapshot<Message, State> | null> {
  const query = request.checkpoint === undefined ? '' : `?checkpoint=${encodeURIComponent(request.checkpoint)}`;
  const response = await (request.fetch ?? fetch)(`${request.api}/snapshot${query}`, {
    headers: request.headers,
    credentials: request.credentials,
    signal: request.signal,
    cache: 'no-store',
  });
  if (response.status === 404) return null;
  if (!response.ok) throw await requestError(response);
  return (await response.json()) as Snapshot<Message, State>;
}

/**
 * Whether a page that shows this snapshot should resume: a run is at work, or it is paused
 * and may have gone on by now, in another tab. The server then replays the answer, or says
 * that there is nothing to resume.
 */
export function shouldResume(snapshot: Pick<Snapshot, 'status'> | null): boolean {
  return snapshot?.status === 'active' || snapshot?.status === 'paused';
}

/**
 * Asks the server to stop the session's run. The run's stream ends by itself,
 * with what was written so far: do not close it.
 */
export async function stop(request: Omit<SnapshotRequest, 'checkpoint'>): Promise<void> {
  const response = await (request.fetch ?? fetch)(`${request.api}/stop`, {
    method: 'POST',
    headers: request.headers,
    credentials: request.credentials,
    signal: request.signal,
  });
  if (!response.ok) throw await requestError(response);
}
