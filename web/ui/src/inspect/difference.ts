/** A place where two values differ. */
export interface Change {
  path: string;
  before: string | undefined; // undefined: it was not there
  after: string | undefined; // undefined: it is not there
}

const most = 50;
const short = 300;

/** Where two JSON values differ, from the outside in; of texts that grew, only what was added. At most 50 places. */
export function difference(before: unknown, after: unknown): Change[] {
  const changes: Change[] = [];
  const walk = (a: unknown, b: unknown, path: string) => {
    if (changes.length >= most || Object.is(a, b)) return;
    if (typeof a === 'object' && typeof b === 'object' && a !== null && b !== null && Array.isArray(a) === Array.isArray(b)) {
      const [x, y] = [a as Record<string, unknown>, b as Record<string, unknown>];
      for (const key of new Set([...Object.keys(x), ...Object.keys(y)])) walk(x[key], y[key], Array.isArray(a) ? `${path}[${key}]` : path === '' ? key : `${path}.${key}`);
      return;
    }
    if (typeof a === 'string' && typeof b === 'string' && b.startsWith(a)) changes.push({ path, before: undefined, after: `… ${text(b.slice(a.length))}` });
    else changes.push({ path, before: text(a), after: text(b) });
  };
  walk(before, after, '');
  return changes;
}

function text(value: unknown): string | undefined {
  if (value === undefined) return undefined;
  const whole = JSON.stringify(value) ?? String(value);
  return whole.length > short ? `${whole.slice(0, short)}…` : whole;
}
