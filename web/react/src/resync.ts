import { loadSnapshot, type Snapshot } from '@spool-run/client';
import type { UIMessage } from 'ai';
import { useCallback, useEffect, useRef, useState } from 'react';
import { useDataParts, useLatest, type DataPart, type DataSource } from './feed.js';
import { sessionURL, type SnapshotAccess } from './snapshot.js';

/** The stream was set back, or cannot be continued. */
export interface ResyncEvent {
  type: 'stream_resync';
  data: {
    /** `crash_recovery`, `rollback`, `branch`, `model_retry`, …, or the code of a ResyncError. */
    reason: string;
    checkpointId?: string;
    stepCount?: number;
    messageCount?: number;
    fromSequence?: number;
    /** The step that begins again, where only a step was set back. */
    step?: number;
  };
}

/** What `setMessages` of `useChat` is. */
export type SetMessages<Message extends UIMessage> = (messages: Message[] | ((messages: Message[]) => Message[])) => void;

function resyncOf(part: DataPart): ResyncEvent | undefined {
  if (part.type !== 'data-stream-resync' && part.type !== 'stream_resync') return undefined;
  const { type: _, ...chunk } = part; // the chunk itself, or a part around it
  const data = (typeof part.data === 'object' && part.data !== null ? part.data : chunk) as ResyncEvent['data'];
  return { type: 'stream_resync', data: { ...data, reason: typeof data.reason === 'string' ? data.reason : 'unknown' } };
}

/** Calls back when the stream was set back, and leaves the rest to the caller. */
export function useStreamResync(data: DataSource, { onResync }: { onResync(event: ResyncEvent): void }): void {
  useDataParts(data, part => {
    const event = resyncOf(part);
    if (event) onResync(event);
  });
}

/** Tells whether the stream was set back and has not gone on since. */
export function useResyncState(data: DataSource): { isResyncing: boolean; lastResyncEvent: ResyncEvent | null } {
  const [state, setState] = useState<{ isResyncing: boolean; lastResyncEvent: ResyncEvent | null }>({ isResyncing: false, lastResyncEvent: null });
  useDataParts(data, part => {
    const event = resyncOf(part);
    if (event) setState({ isResyncing: true, lastResyncEvent: event });
    else setState(s => (s.isResyncing ? { ...s, isResyncing: false } : s));
  });
  return state;
}

export interface AutoResyncOptions<Message extends UIMessage = UIMessage> extends SnapshotAccess {
  /** From `useChat`. */
  setMessages: SetMessages<Message>;
  /** Called at each event, before the snapshot is loaded. */
  onResync?: (event: ResyncEvent) => void;
  /** Called if the snapshot cannot be loaded; the messages stay as they are. */
  onError?: (error: Error) => void;
}

/** Loads the snapshot and shows its messages whenever the stream was set back. */
export function useAutoResync<Message extends UIMessage = UIMessage>(data: DataSource, options: AutoResyncOptions<Message>): void {
  useResyncing(data, options, () => {});
}

/** As useAutoResync; `taken` gets each snapshot that was shown. */
export function useResyncing<Message extends UIMessage>(
  data: DataSource,
  options: AutoResyncOptions<Message> & { enabled?: boolean },
  taken: (snapshot: Snapshot<Message>) => void,
): void {
  const latest = useLatest({ options, taken });
  const running = useRef<AbortController>(undefined);
  const resync = useCallback(
    async (event: ResyncEvent) => {
      latest.current.options.onResync?.(event);
      running.current?.abort(); // A later event makes this answer old.
      const current = (running.current = new AbortController());
      try {
        const { options } = latest.current;
        const snapshot = await loadSnapshot<Message>({ ...options, api: sessionURL(options.snapshotUrl), signal: current.signal });
        if (current.signal.aborted || !snapshot) return;
        latest.current.options.setMessages(shown => mergeSnapshot(shown, snapshot));
        latest.current.taken(snapshot);
      } catch (error) {
        if (!current.signal.aborted) latest.current.options.onError?.(error as Error);
      }
    },
    [latest],
  );
  useEffect(() => () => running.current?.abort(), []);
  useStreamResync(data, {
    onResync: event => {
      if (latest.current.options.enabled !== false) void resync(event);
    },
  });
}

/**
 * The messages of a snapshot. While a run is active its answer comes with the stream and
 * not with the snapshot: where it is shown already, it stays.
 */
export function mergeSnapshot<Message extends UIMessage>(shown: Message[], snapshot: Snapshot<Message>): Message[] {
  const last = shown.at(-1);
  const running = snapshot.status === 'active' && last?.role === 'assistant' && last.id === snapshot.existingMessageId;
  if (!running || snapshot.messages.some(m => m.id === last.id)) return snapshot.messages;
  return [...snapshot.messages, last];
}
