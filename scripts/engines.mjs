// Every package in the locks must say that it runs on this Node, but for the
// exceptions, each with its reason. npm's engine-strict guards the page's own.
import { readFileSync } from 'node:fs';

const exceptions = {
  'ai@7': 'declares Node 22 and runs on 20; it is here to be tested against',
  '@ai-sdk/react@4': 'declares Node 22 and runs on 20; our hooks are tested with it',
  '@ai-sdk/mcp@2': 'comes with @ai-sdk/react 4',
  '@ai-sdk/gateway@4': 'comes with ai 7',
  '@ai-sdk/provider@4': 'comes with ai 7',
  '@ai-sdk/provider-utils@5': 'comes with ai 7',
};

const lock = JSON.parse(readFileSync(new URL('../web/conformance/clients/package-lock.json', import.meta.url), 'utf8'));
const seen = new Set();
let bad = 0;
for (const [path, pkg] of Object.entries(lock.packages)) {
  if (path === '' || !needsNewer(pkg.engines?.node)) continue;
  const name = `${pkg.name ?? path.replace(/^.*node_modules\//, '')}@${pkg.version.split('.')[0]}`;
  if (name in exceptions) seen.add(name);
  else {
    console.error(`${name} asks for Node ${pkg.engines.node} and is not among the exceptions in scripts/engines.mjs`);
    bad++;
  }
}
for (const name of Object.keys(exceptions)) {
  if (!seen.has(name)) {
    console.error(`${name} is an exception in scripts/engines.mjs that nothing needs`);
    bad++;
  }
}
process.exitCode = bad > 0 ? 1 : 0;

function needsNewer(range) {
  const m = /^\s*>=\s*(\d+)/.exec(range ?? '');
  return m !== null && Number(m[1]) > 20;
}
