import { isToolUIPart } from 'ai';
import { useEffect, useRef, useState } from 'react';
import type { Message } from './api';

/**
 * Tells those who listen when an answer begins, ends or waits for them. The
 * conversation itself is silent, or each delta would be read aloud.
 */
export function Announcer({ messages, busy }: { messages: Message[]; busy: boolean }) {
  const [text, setText] = useState('');
  const was = useRef(busy);
  const last = messages.at(-1);
  useEffect(() => {
    if (was.current === busy) return;
    was.current = busy;
    setText(busy ? 'The answer has started' : last?.role === 'assistant' ? endOf(last) : '');
  }, [busy, last]);
  return (
    <p className="unseen" role="status">
      {text}
    </p>
  );
}

function endOf({ parts }: Message): string {
  const end = parts.at(-1)?.type;
  if (end === 'data-error') return ''; // is an alert by itself
  if (end === 'data-run-interrupted') return 'The answer was interrupted';
  const waits = parts.some(p => isToolUIPart(p) && (p.state === 'approval-requested' || p.state === 'input-available'));
  return waits ? 'A tool call needs your answer' : 'The answer is complete';
}
