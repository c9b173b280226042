// What axe, the checker of accessibility, finds on a page.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const source = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export async function accessible(page, state) {
  await page.evaluate(source);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const found = violations.flatMap(v => v.nodes.map(n => `${state}: ${v.id}: ${n.target.join(' ')}: ${n.failureSummary}`));
  assert.deepEqual(found, []);
}
