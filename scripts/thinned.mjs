// Reads what `go test -race -json` wrote: which tests have left out points because
// of the race detector (internal/matrix). Prints the arguments that run these, and
// only these, once more: a pattern and their packages; nothing if there are none.
import { readFileSync } from 'node:fs';

const tests = new Set();
const packages = new Set();
for (const line of readFileSync(process.argv[2], 'utf8').split('\n')) {
  if (!line.includes('matrix: thinned under -race')) continue;
  const e = JSON.parse(line);
  tests.add(e.Test.split('/')[0]);
  packages.add(e.Package);
}
if (tests.size > 0) console.log(`-run ^(${[...tests].sort().join('|')})$ ${[...packages].sort().join(' ')}`);
