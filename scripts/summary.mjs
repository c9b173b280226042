// Reads what `go test -race -json`, `go test -json` and scripts/reporter.mjs wrote:
// the output of what failed, the seconds of each Go package, the ten slowest tests,
// and how many passed.
import { readFileSync } from 'node:fs';

const [raceLog, wholeLog, ...nodeLogs] = process.argv.slice(2);
const tests = [];
const packages = [];
const output = new Map();
const subtests = new Map(); // their seconds, by the parent's key
const failed = new Set();
for (const [file, how] of [[raceLog, ''], [wholeLog, ', every point']]) {
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    if (!line.startsWith('{')) {
      if (line) console.log(line);
      continue;
    }
    const e = JSON.parse(line);
    const key = `${e.Package ?? e.ImportPath} ${e.Test ?? ''}`.trim() + how;
    if (e.Output) output.set(key, (output.get(key) ?? '') + e.Output);
    if (e.Action === 'build-fail') failed.add(key);
    if (e.Action === 'fail') failed.add(key);
    if (!['pass', 'fail', 'skip'].includes(e.Action)) continue;
    const name = key.replace('github.com/spool-run/spool', '.');
    if (!e.Test) {
      packages.push({ name, seconds: e.Elapsed });
      continue;
    }
    // A test's time is that of its subtests, too, but for those that it runs in
    // parallel. They are told of before it.
    const seconds = Math.max(e.Elapsed, subtests.get(key) ?? 0);
    const slash = e.Test.lastIndexOf('/');
    const parent = `${e.Package} ${e.Test.slice(0, slash)}${how}`;
    if (slash >= 0) subtests.set(parent, (subtests.get(parent) ?? 0) + seconds);
    else tests.push({ name, ok: e.Action === 'pass', skipped: e.Action === 'skip', seconds });
  }
}
for (const log of nodeLogs) {
  for (const line of readFileSync(log, 'utf8').split('\n')) if (line) tests.push(JSON.parse(line));
}
for (const key of failed) console.log(`--- FAIL ${key}\n${output.get(key) ?? ''}`);
const show = t => console.log(`${t.seconds.toFixed(1).padStart(7)} s  ${t.name}`);
const slowest = list => [...list].sort((a, b) => b.seconds - a.seconds);
console.log('\nGo packages, by seconds:');
slowest(packages.filter(p => p.seconds >= 1)).forEach(show);
console.log('\nThe ten slowest tests:');
slowest(tests).slice(0, 10).forEach(show);
const passed = new Set(tests.filter(t => t.ok).map(t => t.name));
// What is skipped with -race must have run without it.
const bad = tests.filter(t => !t.ok && !(t.skipped && passed.has(`${t.name}, every point`)));
for (const t of bad) console.log(`${t.skipped ? 'skipped, which no test may be' : 'failed'}: ${t.name}${t.why ? `\n${t.why}` : ''}`);
console.log(`\n${passed.size} passed, ${bad.length} failed`);
process.exitCode = bad.length > 0 || failed.size > 0 ? 1 : 0;
