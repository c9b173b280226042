import { requestError } from './errors.js';
import type { SnapshotRequest, WaitingMessage } from './snapshot.js';

/** A session's endpoint and how to reach it. */
export type CommandRequest = Omit<SnapshotRequest, 'checkpoint'>;

/** Where a session stands after a command. */
export interface Settled {
  sessionId: string;
  status: 'active' | 'paused' | 'ended' | 'failed';
  reason?: string;
  runId?: string;
  streamSequence: number;
  /** The command is stored, and has not taken effect yet. */
  pending?: boolean;
}

/** How a session goes on; a `commandId` makes repeats harmless. */
export type Resume = { commandId?: string } & (
  | { mode: 'continue'; runId?: string }
  | { mode: 'retry' }
  | { mode: 'with_message'; message: unknown }
  | { mode: 'from_checkpoint'; checkpointId: string; message?: unknown }
  | { mode: 'branch'; checkpointId: string; sessionId?: string; message?: unknown }
);

/** A checkpoint, and where it is in the history. */
export interface Checkpoint {
  id: string;
  runId: string;
  stepCount: number;
  seq: number;
  time: number;
  messageId?: string;
  /** The step's place among those of its message; -1 if the history does not hold it any more. */
  stepIndex: number;
}

export interface CheckpointPage {
  items: Checkpoint[];
  total: number;
  hasMore: boolean;
}

/** What the server says of a session without reading its log. */
export interface SessionInfo {
  session: string;
  status: 'active' | 'paused' | 'ended' | 'failed';
  /** The position of the last record. */
  latestSequence: number;
  /** Another number means another log. */
  incarnation: number;
  /** How many messages wait behind a run or a pause. */
  waiting: number;
  error?: string;
}

/** A random id, for messages and commands. (`crypto.randomUUID` is missing where the page was not loaded over TLS or from loopback.) */
export function newID(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, b => b.toString(36).padStart(2, '0')).join('').slice(0, 20);
}

async function send(request: CommandRequest, path: string, body: unknown): Promise<Response> {
  const headers = new Headers(request.headers);
  headers.set('Content-Type', 'application/json');
  headers.set('Accept', 'application/json, text/event-stream');
  const response = await (request.fetch ?? fetch)(request.api + path, {
    method: 'POST',
    headers,
    credentials: request.credentials,
    signal: request.signal,
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await requestError(response);
  return response;
}

async function post(request: CommandRequest, path: string, body: unknown): Promise<Settled> {
  return (await (await send(request, `/${path}`, body)).json()) as Settled;
}

async function get(request: CommandRequest, path: string): Promise<Response> {
  return await (request.fetch ?? fetch)(request.api + path, {
    headers: request.headers,
    credentials: request.credentials,
    signal: request.signal,
    cache: 'no-store',
  });
}

/** Lets the run come to its next step boundary and pause there. Fails with a RequestError. */
export const interrupt = (request: CommandRequest, reason?: string) => post(request, 'interrupt', { reason });

/** Lets a session go on, or goes back in it, or makes a new one of it: see `mode`. Fails with a RequestError. */
export const resume = (request: CommandRequest, how: Resume) => post(request, 'resume', how);

/** Decides on a call that waits for approval. The first decision counts; fails with a RequestError. */
export const decide = (request: CommandRequest, approvalId: string, decision: { approved: boolean; reason?: string }) =>
  post(request, `approvals/${encodeURIComponent(approvalId)}`, decision);

/** Gives the outcome of a call that the client executes. The first one counts; fails with a RequestError. */
export const submitToolResult = (request: CommandRequest, toolCallId: string, result: { output: unknown } | { error: string }) =>
  post(request, `tools/${encodeURIComponent(toolCallId)}`, result);

/**
 * Sends a message while a run may be at work: it waits (`queue`), ends the run at its next
 * step (`steer`), or ends it at once (`interrupt`). Its answer comes with the session's
 * stream, not here. Fails with a RequestError.
 */
export async function sendWhileBusy(request: CommandRequest, message: { id: string }, whenBusy: WaitingMessage['whenBusy']): Promise<void> {
  const leave = new AbortController();
  const signal = request.signal ? AbortSignal.any([request.signal, leave.signal]) : leave.signal;
  await send({ ...request, signal }, '', { message, whenBusy });
  leave.abort(); // The run does not depend on this stream.
}

/** The session's status and position; null if there is no such session. Fails with a RequestError. */
export async function loadInfo(request: CommandRequest): Promise<SessionInfo | null> {
  const response = await get(request, '/info');
  if (response.status === 404) return null;
  if (!response.ok) throw await requestError(response);
  return (await response.json()) as SessionInfo;
}

/** The session's checkpoints, newest first. Fails with a RequestError. */
export async function loadCheckpoints(request: CommandRequest, page: { offset?: number; limit?: number } = {}): Promise<CheckpointPage> {
  const query = new URLSearchParams({ order: 'desc', offset: String(page.offset ?? 0), limit: String(page.limit ?? 200) });
  const response = await get(request, `/checkpoints?${query}`);
  if (!response.ok) throw await requestError(response);
  return (await response.json()) as CheckpointPage;
}
