/**
 * The stream cannot be continued from where this reader stood: load the
 * snapshot and start over from it. `code` is the server's (`cursor_trimmed`,
 * `cursor_retracted`, `cursor_ahead`, …) or one of this package's: `gone` (the
 * server has nothing to continue), `unknown_outcome` (a request that must not
 * be repeated got no answer), `http_NNN`.
 */
export class ResyncError extends Error {
  override readonly name = 'ResyncError';
  constructor(
    readonly code: string,
    message?: string,
  ) {
    super(message ?? `the stream cannot be continued (${code}); load the snapshot`);
  }
}

/** Tells a ResyncError also when it crossed a bundle's border. */
export function isResyncError(error: unknown): error is ResyncError {
  return error instanceof Error && error.name === 'ResyncError';
}

/**
 * Every attempt to reach the server failed, `attempts` times in a row. Nothing was
 * lost: the run does not depend on its readers. Show this with a button that loads the
 * snapshot and resumes. `cause` is what the last attempt failed with.
 */
export class ConnectionLostError extends Error {
  override readonly name = 'ConnectionLostError';
  readonly code = 'connection_lost';
  constructor(
    readonly attempts: number,
    /** The id of the last event that was passed on; undefined before the first. */
    readonly lastEventId: string | undefined,
    cause: unknown,
  ) {
    super(`the server could not be reached (${attempts} attempts)`, { cause });
  }
}

/** Tells a ConnectionLostError also when it crossed a bundle's border. */
export function isConnectionLost(error: unknown): error is ConnectionLostError {
  return error instanceof Error && error.name === 'ConnectionLostError';
}

/** What a failed JSON request answered. */
export class RequestError extends Error {
  override readonly name = 'RequestError';
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** Reads the server's JSON problem, whatever shape the answer really has. */
export async function requestError(response: Response): Promise<RequestError> {
  const text = await response.text().catch(() => '');
  let code = `http_${response.status}`;
  let message = text.slice(0, 300) || `HTTP ${response.status}`;
  try {
    const problem = JSON.parse(text) as { code?: unknown; error?: unknown; message?: unknown; detail?: unknown };
    if (typeof problem.code === 'string') code = problem.code;
    for (const said of [problem.message, problem.detail, problem.error]) {
      if (typeof said === 'string' && said !== '') {
        message = said;
        break;
      }
    }
  } catch {
    // Not JSON: the text is the message.
  }
  return new RequestError(response.status, code, message);
}

/** Where a failure comes from. */
export type ErrorCategory = 'provider' | 'tool' | 'agent' | 'limit' | 'executor' | 'producer' | 'store' | 'unknown';

const categories: Record<string, ErrorCategory> = {
  hook_failed: 'agent',
  output_invalid: 'agent',
  max_steps: 'limit',
  max_tokens: 'limit',
  step_timeout: 'limit',
  run_timeout: 'limit',
  unavailable: 'store',
  closed: 'store',
};

/**
 * The error of a run, made of what the stream or a snapshot tells of it. `code`
 * is stable (`provider_rate_limited`, `tool_fatal`, …); `retryable` says whether
 * trying again may help.
 */
export class StreamError extends Error {
  override readonly name = 'StreamError';
  constructor(
    readonly code: string,
    message: string,
    readonly retryable: boolean,
    readonly runId?: string,
  ) {
    super(message || `the run failed${code && ` (${code})`}`);
  }

  get category(): ErrorCategory {
    const prefix = this.code.split('_', 1)[0] ?? '';
    const known = ['provider', 'tool', 'agent', 'limit', 'executor', 'producer', 'store'];
    return categories[this.code] ?? (known.includes(prefix) ? (prefix as ErrorCategory) : 'unknown');
  }

  /**
   * Reads an `error` chunk, a `run_finished` that failed, a `fail` frame, a
   * `data-error` part or frame, or a snapshot's `error`. null: it tells of none.
   */
  static from(value: unknown): StreamError | null {
    if (typeof value === 'string') return value === '' ? null : new StreamError('', value, false);
    if (typeof value !== 'object' || value === null) return null;
    const v = value as Record<string, unknown>;
    if (v['type'] === 'data-error') return StreamError.from(v['data']);
    if (v['type'] === 'chunk') return StreamError.from(v['chunk']);
    switch (v['type']) {
      case undefined:
      case 'error':
      case 'fail':
        break;
      case 'run_finished':
        if (v['outcome'] !== 'failed') return null;
        break;
      default:
        return null;
    }
    const text = [v['error'], v['errorText'], v['message']].find((t) => typeof t === 'string' && t !== '');
    const code = typeof v['code'] === 'string' ? v['code'] : '';
    if (text === undefined && code === '') return null;
    return new StreamError(code, (text as string | undefined) ?? '', v['recoverable'] === true, v['runId'] as string | undefined);
  }
}

/** Tells a StreamError also when it crossed a bundle's border. */
export function isStreamError(error: unknown): error is StreamError {
  return error instanceof Error && error.name === 'StreamError';
}
