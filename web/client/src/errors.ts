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
