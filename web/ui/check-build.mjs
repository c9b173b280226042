// Fails unless ui/dist is what its source builds to.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'vite';

const root = import.meta.dirname;
const files = dir => readdirSync(dir, { recursive: true, withFileTypes: true }).filter(f => f.isFile()).map(f => join(f.parentPath, f.name).slice(dir.length + 1)).sort();

const fresh = mkdtempSync(join(tmpdir(), 'spool-ui-'));
try {
  await build({ root, logLevel: 'error', build: { outDir: fresh, emptyOutDir: true } });
  const dist = join(root, 'dist');
  const [have, want] = [files(dist), files(fresh)];
  const differ = [...new Set([...have, ...want])].filter(
    f => !have.includes(f) || !want.includes(f) || !readFileSync(join(dist, f)).equals(readFileSync(join(fresh, f))),
  );
  if (differ.length > 0) {
    console.error(`web/ui/dist is not what web/ui/src builds to (make web, then commit it): ${differ.join(', ')}`);
    process.exitCode = 1;
  }
} finally {
  rmSync(fresh, { recursive: true, force: true });
}
