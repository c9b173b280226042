import { firstAfter, type Source, type StoredRecord } from './source';
import { Timeline } from './timeline';

const pageSize = 200;
const mostPages = 40; // of trace in memory

/**
 * A session's records as a list: below the trace floor the kept ones, behind it all of
 * them. Kept records are loaded at once, in the order of the log; pages of the list when
 * they are shown.
 */
export class SessionLog {
  readonly source: Source;
  readonly timeline: Timeline;
  kept: StoredRecord[] = [];
  head = 0;
  traceFloor = 0;
  /** All kept records are here. */
  whole = false;
  error: string | undefined;
  #pages = new Map<number, StoredRecord[]>(); // by number, the oldest use first
  #asked = new Set<number>();
  #listeners = new Set<() => void>();
  #version = 0;
  #keptTo = 0;
  #closed = new AbortController();
  #busy = false;

  constructor(source: Source) {
    this.source = source;
    this.timeline = new Timeline(source.session);
    void this.refresh();
  }

  close() {
    this.#closed.abort();
  }

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  };
  version = () => this.#version;

  #changed() {
    this.#version++;
    for (const listener of this.#listeners) listener();
  }

  /** Loads the kept records that are new. */
  async refresh(): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    try {
      for (let more = true; more; ) {
        const page = await this.source.page(this.#keptTo, 1000, true, this.#closed.signal);
        this.kept = this.kept.concat(page.records);
        this.timeline.add(page.records);
        [this.#keptTo, more] = [page.next, page.hasMore];
        if (page.traceFloor !== this.traceFloor) this.#pages.clear(); // rows are counted from there
        if (page.head > this.head) this.#pages.delete(this.#pageOf(this.head)); // it has grown
        [this.head, this.traceFloor, this.error] = [page.head, page.traceFloor, undefined];
        this.whole = !more;
        this.#changed();
      }
      await this.#look();
    } catch (error) {
      if (this.#closed.signal.aborted) return;
      this.error = (error as Error).message;
      this.#changed();
    } finally {
      this.#busy = false;
    }
  }

  /** Looks at the last record, while a run is at work. */
  async #look(): Promise<void> {
    if (this.timeline.turns.at(-1)?.outcome !== 'running') return;
    const { records } = await this.source.page(this.head - 1, 1, false, this.#closed.signal);
    this.timeline.now = records.at(-1)?.time ?? 0;
    this.#changed();
  }

  /** How many rows the list has. */
  rows(keptOnly: boolean): number {
    return keptOnly ? this.kept.length : this.#below() + Math.max(0, this.head - this.traceFloor);
  }

  #below = () => firstAfter(this.kept, this.traceFloor);
  #pageOf = (sequence: number) => Math.floor((sequence - this.traceFloor - 1) / pageSize);

  /** The row of a record, or of the one before it. */
  rowOf(sequence: number, keptOnly: boolean): number {
    if (keptOnly || sequence <= this.traceFloor) return Math.max(0, firstAfter(this.kept, sequence) - 1);
    return this.#below() + sequence - this.traceFloor - 1;
  }

  /** The record in a row; undefined while it is loaded. */
  at(row: number, keptOnly: boolean): StoredRecord | undefined {
    const below = this.#below();
    if (keptOnly || row < below) return this.kept[row];
    const sequence = this.traceFloor + 1 + row - below;
    const number = this.#pageOf(sequence);
    const page = this.#pages.get(number);
    if (page) return page[sequence - (page[0]?.sequence ?? 0)];
    void this.#load(number);
    return undefined;
  }

  async #load(number: number): Promise<void> {
    if (this.#asked.has(number)) return;
    this.#asked.add(number);
    try {
      const page = await this.source.page(this.traceFloor + number * pageSize, pageSize, false, this.#closed.signal);
      this.#pages.set(number, page.records);
      if (this.#pages.size > mostPages) this.#pages.delete(this.#pages.keys().next().value!);
      this.#changed();
    } catch (error) {
      if (this.#closed.signal.aborted) return;
      this.error = (error as Error).message;
      this.#changed();
    } finally {
      this.#asked.delete(number);
    }
  }
}
