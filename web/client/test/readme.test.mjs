// The TypeScript in the READMEs is what the packages take.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const web = resolve(import.meta.dirname, '../..');

test('the examples of the READMEs compile', async () => {
  const dir = await mkdtemp(`${web}/client/.examples-`); // where packages are found as a page finds them
  try {
    let examples = 0;
    for (const readme of [`${web}/../README.md`, `${web}/client/README.md`, `${web}/react/README.md`, `${web}/package/README.md`]) {
      for (const [, code] of (await readFile(readme, 'utf8')).matchAll(/```tsx?\n(.*?)```/gs)) {
        await writeFile(`${dir}/${examples++}.tsx`, `declare const session: string;\n${code}export {};\n`);
      }
    }
    assert.ok(examples >= 4, 'the READMEs hold no examples');
    await writeFile(
      `${dir}/tsconfig.json`,
      JSON.stringify({
        compilerOptions: { noEmit: true, jsx: 'react-jsx', strict: true, skipLibCheck: true, types: [], target: 'es2022', module: 'esnext', moduleResolution: 'bundler', lib: ['es2024', 'dom', 'dom.iterable'] },
      }),
    );
    await promisify(execFile)(process.execPath, [`${web}/node_modules/typescript/bin/tsc`, '-p', dir]).catch(error => assert.fail(error.stdout));
  } finally {
    await rm(dir, { recursive: true });
  }
});
