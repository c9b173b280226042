import { useEffect, useImperativeHandle, useLayoutEffect, useRef, useState, type ReactNode, type Ref } from 'react';

export interface VirtualHandle {
  /** Brings a row into view. */
  show(row: number): void;
}

interface Props {
  rows: number;
  height: number; // of a row, in pixels
  label: string;
  render(row: number): ReactNode;
  selected?: number | undefined;
  onSelect?(row: number): void;
  /** Keeps the end in view while the reader is there. */
  stick?: boolean;
  ref?: Ref<VirtualHandle>;
}

const around = 8; // rows that are rendered above and below those in view

/** A list of any length, of which only the rows in view are in the document. */
export function Virtual({ rows, height, label, render, selected, onSelect, stick = false, ref }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const atEnd = useRef(true);
  const top = useRef(0);

  const look = () => {
    const el = box.current;
    if (!el) return;
    // Only the reader scrolls up; that rows were added is not a wish to stay behind.
    if (el.scrollTop + el.clientHeight >= el.scrollHeight - height) atEnd.current = true;
    else if (el.scrollTop < top.current) atEnd.current = false;
    top.current = el.scrollTop;
    setView(v => (v.top === el.scrollTop && v.height === el.clientHeight ? v : { top: el.scrollTop, height: el.clientHeight }));
  };
  useEffect(() => {
    const resized = new ResizeObserver(look);
    resized.observe(box.current!);
    return () => resized.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (stick && atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [stick, rows]);

  const show = (row: number) => {
    const el = box.current;
    if (!el) return;
    if (row * height < el.scrollTop) el.scrollTop = row * height;
    else if ((row + 1) * height > el.scrollTop + el.clientHeight) el.scrollTop = (row + 1) * height - el.clientHeight;
  };
  useImperativeHandle(ref, () => ({
    show: row => {
      const el = box.current;
      if (el) el.scrollTop = Math.max(0, row * height - el.clientHeight / 2);
    },
  }));

  const first = Math.max(0, Math.floor(view.top / height) - around);
  const last = Math.min(rows, Math.ceil((view.top + view.height) / height) + around, first + 90);
  const items: ReactNode[] = [];
  for (let row = first; row < last; row++) {
    items.push(
      <div
        key={row}
        role="option"
        id={`${label}-${row}`}
        aria-selected={row === selected}
        aria-posinset={row + 1}
        aria-setsize={rows}
        className="v-row"
        style={{ height, transform: `translateY(${row * height}px)` }}
        onClick={() => onSelect?.(row)}
      >
        {render(row)}
      </div>,
    );
  }
  return (
    <div
      ref={box}
      className="v-box"
      role="listbox"
      aria-label={label}
      aria-activedescendant={selected === undefined ? undefined : `${label}-${selected}`}
      tabIndex={0}
      onScroll={look}
      onKeyDown={e => {
        const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -rows, End: rows }[e.key];
        if (step === undefined || rows === 0) return;
        e.preventDefault();
        const to = Math.min(rows - 1, Math.max(0, (selected ?? -1) + step));
        onSelect?.(to);
        show(to);
      }}
    >
      <div className="v-all" style={{ height: rows * height }}>
        {items}
      </div>
    </div>
  );
}
