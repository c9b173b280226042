import { shouldResume, type Snapshot } from '@spool-run/client';
import type { UIMessage } from 'ai';
import { useCallback, useEffect, useRef, useState } from 'react';
import { useLatest, type DataSource } from './feed.js';
import { mergeSnapshot, useResyncing, type ResyncEvent, type SetMessages } from './resync.js';
import { useCheckpointSnapshot, type SnapshotAccess } from './snapshot.js';

export interface ResumableChatOptions<Message extends UIMessage = UIMessage> extends SnapshotAccess {
  /** From `useChat`. */
  setMessages: SetMessages<Message>;
  /** From `useChat`: with it, the chat follows a run that is at work, and a paused one as soon as it goes on. */
  resumeStream?: () => Promise<void>;
  /** Where the data parts come from: `useDataFeed`. Without it, a stream that was set back is not noticed. */
  data?: DataSource;
  /** The session as it was at this checkpoint. Nothing is followed then. */
  checkpointId?: string;
  /** false: nothing is loaded and nothing followed. Default true. */
  enabled?: boolean;
  /** How often a paused session is looked at while the page is visible. Milliseconds, default 2,500. */
  pollInterval?: number;
  /** Called at each event. */
  onResync?: (event: ResyncEvent) => void;
  /** Called if a resync failed. */
  onError?: (error: Error) => void;
  /** Called when the first snapshot is here. */
  onSnapshotLoaded?: (snapshot: Snapshot<Message>) => void;
}

export interface ResumableChat<Message extends UIMessage = UIMessage> {
  /** The latest snapshot. */
  snapshot: Snapshot<Message> | null;
  /** The first snapshot is on its way. */
  isLoading: boolean;
  /** Why the snapshot could not be loaded. */
  error: Error | null;
  /** Why the last resync failed. */
  resyncError: Error | null;
  hasResynced: boolean;
  resyncCount: number;
  /** The session's latest checkpoint. */
  checkpoint: { id: string; stepCount: number; streamSequence: number } | null;
  /** Loads the snapshot again and shows its messages. */
  refetch(): Promise<Snapshot<Message> | null>;
}

/**
 * Loads a session's snapshot into a `useChat`, follows its run, and starts over from a new
 * snapshot whenever the stream was set back. For chats that are live across tabs and
 * turns too, see `useSession`.
 */
export function useResumableChat<Message extends UIMessage = UIMessage>(options: ResumableChatOptions<Message>): ResumableChat<Message>;
export function useResumableChat<Message extends UIMessage = UIMessage>(data: DataSource, options: ResumableChatOptions<Message>): ResumableChat<Message>;
export function useResumableChat<Message extends UIMessage = UIMessage>(
  first: DataSource | ResumableChatOptions<Message>,
  second?: ResumableChatOptions<Message>,
): ResumableChat<Message> {
  const options = second ?? (first as ResumableChatOptions<Message>);
  const data = second ? (first as DataSource) : options.data;
  const { enabled = true, checkpointId, pollInterval = 2_500 } = options;
  const [resyncs, setResyncs] = useState<{ count: number; error: Error | null }>({ count: 0, error: null });
  const [resynced, setResynced] = useState<Snapshot<Message>>();
  const latest = useLatest(options);
  const loadedOnce = useRef(false);

  /** Shows a snapshot, and follows the run it tells of. */
  const take = useCallback(
    (snapshot: Snapshot<Message>) => {
      const { setMessages, resumeStream, checkpointId } = latest.current;
      setMessages(shown => mergeSnapshot(shown, snapshot));
      if (checkpointId === undefined && shouldResume(snapshot)) void resumeStream?.().catch(() => {}); // the chat has the error
    },
    [latest],
  );

  const loaded = useCheckpointSnapshot<Message>({
    ...options,
    enabled,
    checkpointId,
    onLoaded: snapshot => {
      setResynced(undefined);
      take(snapshot);
      if (!loadedOnce.current) latest.current.onSnapshotLoaded?.(snapshot);
      loadedOnce.current = true;
    },
  });

  useResyncing<Message>(
    data,
    {
      ...options,
      onResync: event => {
        setResyncs(r => ({ count: r.count + 1, error: null }));
        latest.current.onResync?.(event);
      },
      onError: error => {
        setResyncs(r => ({ ...r, error }));
        latest.current.onError?.(error);
      },
    },
    setResynced,
  );

  const snapshot = resynced ?? loaded.snapshot;
  const { refetch } = loaded;
  const paused = enabled && checkpointId === undefined && snapshot?.status === 'paused' && options.resumeStream !== undefined;
  useEffect(() => {
    if (!paused) return;
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') void refetch();
    }, pollInterval);
    return () => clearInterval(timer);
  }, [paused, pollInterval, refetch]);

  return {
    snapshot,
    isLoading: loaded.loading,
    error: loaded.error,
    resyncError: resyncs.error,
    hasResynced: resyncs.count > 0,
    resyncCount: resyncs.count,
    checkpoint: snapshot?.checkpoint ?? null,
    refetch,
  };
}
