import { useRef, useState } from 'react';
import { endOf, rowsOf, type Span, type Turn } from './timeline';
import { duration } from './words';

const rowHeight = 26;

interface Props {
  turn: Turn;
  now: number; // of the timeline
  selected: number | undefined; // a sequence
  onSelect(sequence: number): void;
}

/** A turn in time: what ran, how long, what happened meanwhile. Zoomed with the buttons, the keys + and -, or Ctrl and the wheel. */
export function Gantt({ turn, now, selected, onSelect }: Props) {
  const [zoom, setZoom] = useState(1);
  const scroller = useRef<HTMLDivElement>(null);
  const total = Math.max(1, endOf(turn, now) - turn.from);
  const rows = rowsOf(turn);
  const lanes = rows.reduce((most, r) => Math.max(most, r.row + 1), 1);
  const at = (time: number) => `${((time - turn.from) / total) * 100}%`;
  const wide = (span: Span) => `max(4px, ${(((span.to ?? endOf(turn, now)) - span.from) / total) * 100}%)`;
  const scale = (by: number) => {
    const el = scroller.current;
    const middle = el ? (el.scrollLeft + el.clientWidth / 2) / el.scrollWidth : 0.5;
    setZoom(z => Math.min(200, Math.max(1, z * by)));
    requestAnimationFrame(() => el && (el.scrollLeft = middle * el.scrollWidth - el.clientWidth / 2));
  };
  return (
    <section className="gantt" aria-label="Timeline of the turn">
      <div className="gantt-tools">
        <button type="button" aria-label="Zoom out" onClick={() => scale(0.5)} disabled={zoom <= 1}>
          −
        </button>
        <button type="button" aria-label="Zoom in" onClick={() => scale(2)}>
          +
        </button>
        <span className="quiet">{duration(total)}</span>
        <span className="gantt-key">
          <i data-kind="model" /> model <i data-kind="tool" /> tool <i data-kind="agent" /> sub-agent <i data-kind="pause" /> waiting
        </span>
      </div>
      <div
        className="gantt-scroll"
        ref={scroller}
        tabIndex={0}
        role="group"
        aria-label="What ran, from left to right"
        onWheel={e => {
          if (e.ctrlKey) scale(e.deltaY < 0 ? 1.25 : 0.8);
        }}
        onKeyDown={e => {
          if (e.key === '+' || e.key === '=') scale(2);
          if (e.key === '-') scale(0.5);
        }}
      >
        <div className="gantt-all" style={{ width: `${zoom * 100}%`, height: lanes * rowHeight + 34 }}>
          {[0, 0.25, 0.5, 0.75].map(f => (
            <span key={f} className="gantt-tick" style={{ left: `${f * 100}%` }}>
              {duration(total * f)}
            </span>
          ))}
          {turn.marks.map(m => (
            <button
              key={`${m.sequence} ${m.kind}`}
              type="button"
              className="gantt-mark"
              data-kind={m.kind}
              aria-current={m.sequence === selected || undefined}
              style={{ left: `min(${at(m.at)}, 100% - 7px)` }}
              title={`${m.label} (record ${m.sequence})`}
              aria-label={`${m.label}, record ${m.sequence}`}
              onClick={() => onSelect(m.sequence)}
            />
          ))}
          {rows.map(({ span, row }) => (
            <button
              key={`${span.first} ${span.kind} ${span.label}`}
              type="button"
              className="gantt-span"
              data-kind={span.kind}
              data-failed={span.failed || undefined}
              data-open={span.to === undefined || undefined}
              aria-current={selected === span.first || selected === span.last || undefined}
              style={{ left: at(span.from), width: wide(span), top: 30 + row * rowHeight, height: rowHeight - 4 }}
              title={`${span.label}: ${span.to === undefined ? 'running' : duration(span.to - span.from)}${span.failed ? ', failed' : ''}`}
              onClick={() => onSelect(span.first)}
            >
              {span.label}
            </button>
          ))}
        </div>
      </div>
    </section>
  );
}
