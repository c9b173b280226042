import { loadCheckpoints, type Checkpoint, type CommandRequest, type Snapshot, type WaitingMessage } from '@spool-run/client';
import type { UIMessage } from 'ai';

/** What a session is beside its messages: where one can go back to, what waits, where it came from. */
export interface Timeline<Message extends UIMessage = UIMessage> {
  /** By message, then by step. */
  checkpoints: ReadonlyMap<string, ReadonlyMap<number, Checkpoint>>;
  latest: string | undefined;
  waiting: (Message & WaitingMessage)[];
  origin: { sessionId: string; checkpointId: string } | undefined;
}

export const noTimeline: Timeline<never> = { checkpoints: new Map(), latest: undefined, waiting: [], origin: undefined };

/** The part of a timeline that a snapshot tells. */
export const ofSnapshot = <Message extends UIMessage>(snapshot: Snapshot<Message> | null) => ({
  latest: snapshot?.checkpointId ?? undefined,
  waiting: snapshot?.waiting ?? [],
  origin: snapshot?.origin,
});

/** The latest checkpoints that the history holds. */
export async function checkpointsOf(request: CommandRequest): Promise<Timeline['checkpoints']> {
  const byMessage = new Map<string, Map<number, Checkpoint>>();
  for (const checkpoint of (await loadCheckpoints(request, { limit: 500 })).items) {
    if (checkpoint.messageId === undefined || checkpoint.stepIndex < 0) continue;
    let steps = byMessage.get(checkpoint.messageId);
    if (!steps) byMessage.set(checkpoint.messageId, (steps = new Map()));
    if (!steps.has(checkpoint.stepIndex)) steps.set(checkpoint.stepIndex, checkpoint);
  }
  return byMessage;
}
