import { useEffect, useState } from 'react';
import type { Source, StoredRecord } from './source';
import { endOf, type Turn } from './timeline';
import { duration, why } from './words';

/** Prices in dollars for a million tokens, as the reader has set them. */
export interface Prices {
  input: number;
  output: number;
}

const key = 'spool:prices';

export function usePrices(): [Prices, (prices: Prices) => void] {
  const [prices, setPrices] = useState<Prices>(() => {
    try {
      const { input, output } = JSON.parse(localStorage.getItem(key) ?? '{}') as Partial<Prices>;
      return { input: Number(input) || 0, output: Number(output) || 0 };
    } catch {
      return { input: 0, output: 0 };
    }
  });
  return [
    prices,
    next => {
      setPrices(next);
      try {
        localStorage.setItem(key, JSON.stringify(next));
      } catch {
        // They last until the page is left.
      }
    },
  ];
}

const cost = (turn: { input: number; output: number }, p: Prices) => (turn.input * p.input + turn.output * p.output) / 1e6;
const dollars = (n: number) => (n === 0 ? '–' : n < 0.01 ? `$${n.toFixed(5)}` : `$${n.toFixed(2)}`);

/** What one turn took, beside another one. */
export function TurnTable({ source, turns, now, prices }: { source: Source; turns: Turn[]; now: number; prices: Prices }) {
  const rows: [string, (t: Turn) => string][] = [
    ['Outcome', t => t.outcome],
    ['Duration', t => (t.to === undefined && t.outcome === 'running' ? `${duration(endOf(t, now) - t.from)} so far` : duration(endOf(t, now) - t.from))],
    ['Steps', t => String(t.steps)],
    ['Model', t => sum(t, 'model', now)],
    ['Tools', t => `${t.spans.filter(s => s.kind === 'tool').length} calls, ${sum(t, 'tool', now)}`],
    ['Waiting', t => sum(t, 'pause', now)],
    ['Failed or repeated', t => String(t.spans.filter(s => s.failed).length + t.marks.filter(m => m.kind === 'retry').length)],
    ['Owners changed', t => String(t.marks.filter(m => m.kind === 'owner').length)],
    ['Tokens in / out', t => `${t.input.toLocaleString()} / ${t.output.toLocaleString()}`],
    ['Cost', t => dollars(cost(t, prices))],
  ];
  return (
    <table className="facts">
      {turns.length > 1 && (
        <thead>
          <tr>
            <td />
            {turns.map(t => (
              <th key={t.first}>{t.said || 'Turn'}</th>
            ))}
          </tr>
        </thead>
      )}
      <tbody>
        {rows.map(([label, of]) => (
          <tr key={label}>
            <th scope="row">{label}</th>
            {turns.map(t => (
              <td key={t.first}>{of(t)}</td>
            ))}
          </tr>
        ))}
        <tr>
          <th scope="row">Time to first token</th>
          {turns.map(t => (
            <td key={t.first}>
              <FirstToken source={source} turn={t} />
            </td>
          ))}
        </tr>
      </tbody>
    </table>
  );
}

const sum = (turn: Turn, kind: string, now: number) => duration(turn.spans.reduce((ms, s) => (s.kind === kind ? ms + ((s.to ?? endOf(turn, now)) - s.from) : ms), 0));

/** How long the model took to say something. That is in the trace, which is trimmed some time. */
function FirstToken({ source, turn }: { source: Source; turn: Turn }) {
  const [said, setSaid] = useState('');
  const step = turn.spans.find(s => s.kind === 'model');
  useEffect(() => {
    if (!step) return;
    const left = new AbortController();
    source.page(step.first, 20, false, left.signal).then(
      page => {
        const first = page.records.find(r => /_delta$|^thinking$|^text_start$/.test(r.chunk.type));
        setSaid(first ? duration(first.time - step.from) : page.traceFloor >= step.first ? 'trimmed' : '–');
      },
      () => {},
    );
    return () => left.abort();
  }, [source, step?.first, step?.from, turn.last > turn.first + 3]);
  return <>{said}</>;
}

/** Why the session is as it is, by its latest run. */
export function whyOf(kept: readonly StoredRecord[], session: string): string {
  for (let i = kept.length - 1; i >= 0; i--) {
    const c = kept[i]!.chunk;
    if (c.agentId !== session) continue;
    if (c.type === 'run_started') return why({ status: 'active' });
    if (c.type === 'run_suspended') return why({ status: 'paused', reason: text(c['kind']) });
    if (c.type === 'run_finished') return why({ status: c['outcome'] === 'failed' ? 'failed' : 'ended', reason: text(c['outcome']), code: text(c['code']), error: c['error'] });
  }
  return why({});
}

const text = (value: unknown) => (typeof value === 'string' ? value : undefined);
