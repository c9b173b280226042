import type { DynamicToolUIPart, ToolUIPart } from 'ai';
import { useState } from 'react';
import { IconCheck, IconChevron, IconCross } from './icons';
import { Bar, type ProgressEntry } from './progress';

const words: Record<string, string> = {
  'input-streaming': 'writing arguments',
  'input-available': 'running',
  'approval-requested': 'waits for approval',
  'approval-responded': 'answered',
  'output-available': 'done',
  'output-error': 'failed',
  'output-denied': 'denied',
};

/** A tool call, what it was given and what came of it. */
export function ToolCall({ part, live, progress }: { part: ToolUIPart | DynamicToolUIPart; live: boolean; progress?: ProgressEntry | undefined }) {
  const [open, setOpen] = useState(false);
  const name = part.type === 'dynamic-tool' ? part.toolName : part.type.slice('tool-'.length);
  const failed = part.state === 'output-error' || part.state === 'output-denied';
  const settled = failed || part.state === 'output-available';
  const preliminary = part.state === 'output-available' && part.preliminary === true;
  const input = part.input ?? (part as { rawInput?: unknown }).rawInput;
  return (
    <details className="tool" data-state={part.state} open={open} onToggle={e => setOpen(e.currentTarget.open)}>
      <summary>
        <span className="tool-icon">
          {failed ? <IconCross /> : settled && !preliminary ? <IconCheck /> : live ? <span className="spinner" /> : <span className="dot" />}
        </span>
        <code className="tool-name">{name}</code>
        <span className="tool-hint">{brief(input)}</span>
        {progress && !settled && <Bar label={progress.label} percent={progress.percent} />}
        <span className="tool-state">{preliminary ? 'working' : words[part.state] ?? part.state}</span>
        <span className="chevron">
          <IconChevron />
        </span>
      </summary>
      {open && (
        <div className="tool-body">
          {input !== undefined && <Value label="Input" value={input} />}
          {part.state === 'output-available' && <Value label="Output" value={part.output} />}
          {part.state === 'output-error' && <Value label="Error" value={part.errorText} />}
        </div>
      )}
    </details>
  );
}

export function Value({ label, value }: { label: string; value: unknown }) {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  return (
    <>
      <h4>{label}</h4>
      <pre>{text}</pre>
    </>
  );
}

function brief(value: unknown): string {
  if (value === undefined || value === null) return '';
  if (typeof value === 'string') return value.slice(0, 80);
  if (typeof value !== 'object') return String(value);
  return Object.values(value)
    .map(v => (typeof v === 'object' ? JSON.stringify(v) : String(v)))
    .join(', ')
    .slice(0, 80);
}
