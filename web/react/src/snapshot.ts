import { loadSnapshot, type Snapshot } from '@spool-run/client';
import type { UIMessage } from 'ai';
import { useCallback, useEffect, useState } from 'react';
import { useLatest } from './feed.js';

/** Where a session's snapshot is. */
export interface SnapshotAccess {
  /** Such as `/api/chat/my-session/snapshot`. */
  snapshotUrl: string;
  headers?: HeadersInit;
  credentials?: RequestCredentials;
  fetch?: typeof fetch;
}

export interface CheckpointSnapshotOptions<Message extends UIMessage = UIMessage> extends SnapshotAccess {
  /** The state as it was at this checkpoint. Default: as it is now. */
  checkpointId?: string | undefined;
  /** false: nothing is loaded. Default true. */
  enabled?: boolean;
  onLoaded?: (snapshot: Snapshot<Message>) => void;
}

export interface CheckpointSnapshot<Message extends UIMessage = UIMessage> {
  /** null while it loads, if it failed, and if there is no such session. */
  snapshot: Snapshot<Message> | null;
  loading: boolean;
  error: Error | null;
  refetch(): Promise<Snapshot<Message> | null>;
}

/** Loads a session's snapshot, and loads it again when the URL or the checkpoint changes. */
export function useCheckpointSnapshot<Message extends UIMessage = UIMessage>(options: CheckpointSnapshotOptions<Message>): CheckpointSnapshot<Message> {
  const { snapshotUrl, checkpointId, enabled = true } = options;
  const key = `${snapshotUrl} ${checkpointId ?? ''}`;
  const [state, setState] = useState<{ key: string; snapshot: Snapshot<Message> | null; error: Error | null }>();
  const latest = useLatest(options);

  const load = useCallback(
    async (signal?: AbortSignal) => {
      try {
        const { headers, credentials, fetch } = latest.current;
        const snapshot = await loadSnapshot<Message>({
          api: sessionURL(snapshotUrl),
          ...(headers && { headers }),
          ...(credentials && { credentials }),
          ...(fetch && { fetch }),
          ...(signal && { signal }),
          ...(checkpointId !== undefined && { checkpoint: checkpointId }),
        });
        if (signal?.aborted) return null;
        setState({ key, snapshot, error: null });
        if (snapshot) latest.current.onLoaded?.(snapshot);
        return snapshot;
      } catch (error) {
        if (!signal?.aborted) setState({ key, snapshot: null, error: error as Error });
        return null;
      }
    },
    [key, snapshotUrl, checkpointId, latest],
  );

  useEffect(() => {
    if (!enabled) return;
    const leave = new AbortController();
    void load(leave.signal);
    return () => leave.abort();
  }, [enabled, load]);

  const current = state?.key === key ? state : undefined; // what another session's URL brought is not shown
  const refetch = useCallback(() => load(), [load]);
  return { snapshot: current?.snapshot ?? null, loading: enabled && !current, error: current?.error ?? null, refetch };
}

/** The session's endpoint, of its snapshot's URL. */
export const sessionURL = (snapshotUrl: string) => snapshotUrl.replace(/\/snapshot\/?$/, '');
