// Makes the package of what the workspaces were built to. Each stays as it is, module for
// module, so that bundlers can leave out what a page does not use.
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';

const here = import.meta.dirname;
const dist = join(here, 'dist');
const parts = ['client', 'react', 'server'];

rmSync(dist, { recursive: true, force: true });
for (const part of parts) cpSync(join(here, '..', part, 'dist'), join(dist, part), { recursive: true });
cpSync(join(here, '../../LICENSE'), join(here, 'LICENSE'));

// Inside one package the workspaces find each other by their place.
for (const file of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (!/\.(js|d\.ts)$/.test(file.name)) continue;
  const path = join(file.parentPath, file.name);
  const text = readFileSync(path, 'utf8');
  const placed = text.replace(/(['"])@spool-run\/(client|react|server)\1/g, (_, quote, part) => quote + relative(file.parentPath, join(dist, part, 'index.js')) + quote);
  if (placed !== text) writeFileSync(path, placed);
}
