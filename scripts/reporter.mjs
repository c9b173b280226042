// A reporter for node --test: one JSON line a test, for scripts/summary.mjs.
export default async function* reporter(events) {
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    if (data.details?.type === 'suite' || /\.mjs$/.test(data.name)) continue;
    yield `${JSON.stringify({ name: data.name, ok: type === 'test:pass', seconds: (data.details?.duration_ms ?? 0) / 1000 })}\n`;
  }
}
