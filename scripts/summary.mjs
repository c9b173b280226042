// Reads what `go test -json` and scripts/reporter.mjs wrote: the output of what
// failed, the ten slowest tests, and how many passed.
import { readFileSync } from 'node:fs';

const [goLog, ...nodeLogs] = process.argv.slice(2);
const tests = [];
const output = new Map();
const failed = new Set();
for (const line of readFileSync(goLog, 'utf8').split('\n')) {
  if (!line.startsWith('{')) {
    if (line) console.log(line);
    continue;
  }
  const e = JSON.parse(line);
  const key = `${e.Package ?? e.ImportPath} ${e.Test ?? ''}`.trim();
  if (e.Output) output.set(key, (output.get(key) ?? '') + e.Output);
  if (e.Action === 'build-fail') failed.add(key);
  if (e.Action === 'fail') failed.add(key);
  // A parent's time is that of its subtests.
  if (e.Test && !e.Test.includes('/') && (e.Action === 'pass' || e.Action === 'fail' || e.Action === 'skip')) {
    tests.push({ name: key.replace('github.com/spool-run/spool', '.'), ok: e.Action === 'pass', skipped: e.Action === 'skip', seconds: e.Elapsed });
  }
}
for (const log of nodeLogs) {
  for (const line of readFileSync(log, 'utf8').split('\n')) if (line) tests.push(JSON.parse(line));
}
for (const key of failed) console.log(`--- FAIL ${key}\n${output.get(key) ?? ''}`);
console.log('\nThe ten slowest tests:');
for (const t of [...tests].sort((a, b) => b.seconds - a.seconds).slice(0, 10)) console.log(`${t.seconds.toFixed(1).padStart(7)} s  ${t.name}`);
const bad = tests.filter(t => !t.ok);
for (const t of bad) console.log(`${t.skipped ? 'skipped, which no test may be' : 'failed'}: ${t.name}${t.why ? `\n${t.why}` : ''}`);
console.log(`\n${tests.length - bad.length} passed, ${bad.length} failed`);
process.exitCode = bad.length > 0 || failed.size > 0 ? 1 : 0;
