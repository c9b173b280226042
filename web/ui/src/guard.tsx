import { Component, type ErrorInfo, type ReactNode } from 'react';

interface Props {
  /** What is shown instead if the children cannot be rendered, as its source; another one is tried again. */
  source: unknown;
  /** Stands in for the source. */
  instead?: ReactNode;
  children: ReactNode;
}

interface State {
  source: unknown;
  failed: boolean;
}

/** Keeps what cannot be rendered from taking the rest of the page with it. */
export class Guard extends Component<Props, State> {
  override state: State = { source: this.props.source, failed: false };

  static getDerivedStateFromProps({ source }: Props, state: State): State | null {
    return source === state.source ? null : { source, failed: false };
  }

  static getDerivedStateFromError(): Partial<State> {
    return { failed: true };
  }

  override componentDidCatch(error: Error, info: ErrorInfo) {
    console.error('A part of the page could not be shown:', error, info.componentStack);
  }

  override render() {
    if (!this.state.failed) return this.props.children;
    return this.props.instead === undefined ? <Source value={this.props.source} /> : this.props.instead;
  }
}

// How much is shown of a text and of another value: more would freeze the page.
const mostText = 4_000_000;
const mostJSON = 100_000;

/** A value as it is. */
export function Source({ value }: { value: unknown }) {
  return (
    <pre className="as-is" dir="auto">
      {asText(value)}
    </pre>
  );
}

/** A value as text: a string as it is, anything else as JSON; very long ones without their end. */
export function asText(value: unknown): string {
  const text = typeof value === 'string' ? value : json(value);
  const most = typeof value === 'string' ? mostText : mostJSON;
  return text.length <= most ? text : `${text.slice(0, most)}\n… ${(text.length - most).toLocaleString()} more characters`;
}

function json(value: unknown): string {
  try {
    return JSON.stringify(value, null, 2) ?? String(value);
  } catch {
    return 'A value that cannot be shown.'; // nested too deep
  }
}
