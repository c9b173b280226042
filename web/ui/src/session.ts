import { RequestError } from '@spool-run/client';
import { ChatSession } from '@spool-run/react';
import { chatAPI, type Message } from './api';

export type Session = ChatSession<Message>;

/** A session as the page opens it. */
export const openSession = (id: string, fresh: boolean): Session => new ChatSession<Message>({ api: chatAPI(id), id, ...(fresh && { snapshot: null }) });

/** What the page remembers of how a session is shown, over replays, which begin their message again. */
interface View {
  /** Which sub-agents stand open. */
  unfolded: Map<string, boolean>;
  /** Why the reader's answer to a call did not count. */
  refused: Map<string, string>;
}

const views = new WeakMap<Session, View>();

export function viewOf(session: Session): View {
  let view = views.get(session);
  if (!view) views.set(session, (view = { unfolded: new Map(), refused: new Map() }));
  return view;
}

const refusals: Record<string, string> = {
  already_answered: 'Another answer was given first.',
  too_late: 'Too late: the call is settled.',
  not_waiting: 'The run has not asked for this answer yet.',
};

/** Why an answer to a call did not count; undefined if it did. */
export async function refusal(answer: Promise<void>): Promise<string | undefined> {
  try {
    await answer;
    return undefined;
  } catch (error) {
    if (!(error instanceof RequestError)) return `Sending failed: ${(error as Error).message}`;
    return refusals[error.code] ?? error.message;
  }
}
