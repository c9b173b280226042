import { useChat } from '@ai-sdk/react';
import type { UIMessage } from 'ai';
import { useEffect, useState, useSyncExternalStore } from 'react';
import { ChatSession, type ChatSessionOptions, type ChatSessionState } from './session.js';

/** A session's state, and the session itself for everything that one can do with it. */
export type SessionView<Message extends UIMessage = UIMessage> = ChatSessionState<Message> & { session: ChatSession<Message> };

/**
 * One session, live: answers, messages of other tabs and devices, decisions, stops and
 * pauses, over refreshes, lost networks and restarts of the server.
 *
 * The component that calls it renders when the session's state changes, not with each
 * delta: show the messages in another one, with `useSessionMessages`.
 *
 * Of the options, `api` and `id` name the session; the others are read when it is made.
 */
export function useSession<Message extends UIMessage = UIMessage>(options: ChatSessionOptions<Message>): SessionView<Message> {
  const [held, setHeld] = useState(() => ({ key: keyOf(options), session: new ChatSession<Message>(options) }));
  let current = held;
  if (held.key !== keyOf(options)) {
    current = { key: keyOf(options), session: new ChatSession<Message>(options) };
    setHeld(current);
  }
  const { session } = current;
  useEffect(() => {
    session.open();
    return () => session.close();
  }, [session]);
  const state = useSyncExternalStore(session.subscribe, session.getState, session.getState);
  return { ...state, session };
}

const keyOf = (options: { api: string; id?: string }) => JSON.stringify([options.api, options.id]);

/**
 * The session's messages; the component that calls it renders at most every `throttle`
 * milliseconds (50). Only the message that grows is another object than before, so that
 * components wrapped in `memo` render that one alone.
 */
export function useSessionMessages<Message extends UIMessage>(session: ChatSession<Message>, throttle = 50): Message[] {
  const { messages } = useChat<Message>({ chat: session.chat, experimental_throttle: throttle });
  useEffect(() => session.shows(messages.at(-1)));
  return messages;
}
