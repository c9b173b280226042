// A reporter for node --test: one JSON line a test, for scripts/summary.mjs.
export default async function* reporter(events) {
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    if (data.details?.type === 'suite' || /\.mjs$/.test(data.name)) continue;
    const error = data.details?.error;
    const why = error && String((error.cause ?? error).message ?? error.cause).slice(0, 10_000);
    yield `${JSON.stringify({ name: data.name, ok: type === 'test:pass', seconds: (data.details?.duration_ms ?? 0) / 1000, why })}\n`;
  }
}
