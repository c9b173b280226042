import { requestError } from './errors.js';
import type { SnapshotRequest } from './snapshot.js';

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

async function post(request: CommandRequest, path: string, body: unknown): Promise<Settled> {
  const headers = new Headers(request.headers);
  headers.set('Content-Type', 'application/json');
  const response = await (request.fetch ?? fetch)(`${request.api}/${path}`, {
    method: 'POST',
    headers,
    credentials: request.credentials,
    signal: request.signal,
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await requestError(response);
  return (await response.json()) as Settled;
}

/** Lets the run come to its next step boundary and pause there. Fails with a RequestError. */
export const interrupt = (request: CommandRequest, reason?: string) => post(request, 'interrupt', { reason });

/** Lets a session go on, or goes back in it, or makes a new one of it: see `mode`. Fails with a RequestError. */
export const resume = (request: CommandRequest, how: Resume) => post(request, 'resume', how);

/** The session's checkpoints, newest first. Fails with a RequestError. */
export async function loadCheckpoints(request: CommandRequest, page: { offset?: number; limit?: number } = {}): Promise<CheckpointPage> {
  const query = new URLSearchParams({ order: 'desc', offset: String(page.offset ?? 0), limit: String(page.limit ?? 200) });
  const response = await (request.fetch ?? fetch)(`${request.api}/checkpoints?${query}`, {
    headers: request.headers,
    credentials: request.credentials,
    signal: request.signal,
    cache: 'no-store',
  });
  if (!response.ok) throw await requestError(response);
  return (await response.json()) as CheckpointPage;
}
