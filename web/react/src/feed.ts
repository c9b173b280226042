import { isResyncError } from '@spool-run/client';
import { useEffect, useRef, useState } from 'react';

/** A data part as `useChat` hands it to `onData`. */
export interface DataPart {
  type: string;
  id?: string | undefined;
  data?: unknown;
}

/**
 * Passes the data parts of a chat on to the hooks of this package. Parts like
 * `data-stream-resync` are transient: they reach `onData` and are in no message.
 *
 * ```tsx
 * const feed = useDataFeed();
 * const { setMessages } = useChat({ onData: feed.onData, onError: feed.onError });
 * useAutoResync(feed, { snapshotUrl, setMessages });
 * ```
 */
export class DataFeed {
  #listeners = new Set<(part: DataPart) => void>();

  onData = (part: DataPart) => {
    for (const listener of [...this.#listeners]) listener(part);
  };

  /** A stream that cannot be continued is a resync too; its reason is the error's code. */
  onError = (error: Error) => {
    if (isResyncError(error)) this.onData({ type: 'data-stream-resync', data: { reason: error.code } });
  };

  subscribe = (listener: (part: DataPart) => void) => {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  };
}

export const useDataFeed = (): DataFeed => useState(() => new DataFeed())[0];

/** Where the data parts come from: a feed, or a list that grows, as earlier versions of `useChat` had it. */
export type DataSource = DataFeed | readonly unknown[] | null | undefined;

/** Calls back with each data part of the source, once. */
export function useDataParts(source: DataSource, take: (part: DataPart) => void): void {
  const latest = useLatest(take);
  const seen = useRef<WeakSet<object>>(undefined);
  const feed = source instanceof DataFeed ? source : undefined;
  const list = source instanceof DataFeed ? undefined : source;
  useEffect(() => feed?.subscribe(part => latest.current(part)), [feed, latest]);
  useEffect(() => {
    seen.current ??= new WeakSet();
    for (const part of list ?? []) {
      if (typeof part !== 'object' || part === null || seen.current.has(part)) continue;
      seen.current.add(part);
      if (typeof (part as DataPart).type === 'string') latest.current(part as DataPart);
    }
  }, [list, latest]);
}

/** A value as it was at the last commit, for callbacks that must not begin an effect again. */
export function useLatest<T>(value: T): { readonly current: T } {
  const ref = useRef(value);
  useEffect(() => {
    ref.current = value;
  });
  return ref;
}
