// The package as it is published.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { rolldown } from 'rolldown';

const run = promisify(execFile);
const here = resolve(import.meta.dirname, '..');
const modules = resolve(here, '../node_modules');
const manifest = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'));
const entries = Object.keys(manifest.exports).filter(e => !e.endsWith('.json')).map(e => join(manifest.name, e));

let dir, tarball;

/** An application that has installed the tarball, and its peers. */
before(async () => {
  dir = mkdtempSync(join(here, '.test-'));
  const { stdout } = await run('npm', ['pack', '--silent', '--json', '--pack-destination', dir], { cwd: here });
  tarball = join(dir, JSON.parse(stdout)[0].filename);
  const installed = join(dir, 'node_modules', manifest.name);
  mkdirSync(installed, { recursive: true });
  await run('tar', ['-xzf', tarball, '-C', installed, '--strip-components=1']);
  mkdirSync(join(dir, 'node_modules/@ai-sdk'));
  mkdirSync(join(dir, 'node_modules/@types'));
  for (const peer of ['ai', '@ai-sdk/react', 'react', '@types/react', '@types/node']) symlinkSync(join(modules, peer), join(dir, 'node_modules', peer));
  writeFileSync(join(dir, 'package.json'), '{"type":"module"}');
});
after(() => dir && rmSync(dir, { recursive: true, force: true }));

test('publint has nothing to say', async () => {
  const { messages, pkg } = await publint({ pkgDir: join(dir, 'node_modules', manifest.name), pack: false });
  assert.deepEqual(messages.map(m => formatMessage(m, pkg, { color: false })), []);
});

test('its types are found as its code is', async () => {
  await run(process.execPath, [join(modules, '@arethetypeswrong/cli/dist/index.js'), tarball, '--profile', 'esm-only', '--no-emoji', '--no-color'], { cwd: dir }).catch(e =>
    assert.fail(e.stdout + e.stderr),
  );
});

test('each entry can be imported', async () => {
  const program = entries.map((e, i) => `import * as m${i} from '${e}';`).join('\n') + `\nconsole.log(JSON.stringify([${entries.map((_, i) => `Object.keys(m${i}).length`)}]));`;
  writeFileSync(join(dir, 'all.mjs'), program);
  const { stdout } = await run(process.execPath, ['all.mjs'], { cwd: dir });
  assert.deepEqual(JSON.parse(stdout).map(n => n > 0), entries.map(() => true));
});

for (const [module, moduleResolution] of [['nodenext', 'nodenext'], ['esnext', 'bundler']]) {
  test(`each entry has types, resolved as ${moduleResolution} does`, async () => {
    writeFileSync(join(dir, 'all.ts'), entries.map((e, i) => `import * as m${i} from '${e}';\nexport const n${i}: number = Object.keys(m${i}).length;\n// @ts-expect-error there is no such export\nm${i}.nothing;`).join('\n'));
    const compilerOptions = { noEmit: true, strict: true, types: ['node'], target: 'es2022', skipLibCheck: true, module, moduleResolution, lib: ['es2023', 'dom', 'dom.iterable'] };
    writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['all.ts'] }));
    await run(process.execPath, [join(modules, 'typescript/bin/tsc'), '-p', dir]).catch(e => assert.fail(e.stdout));
  });
}

/** What a page pays for an entry: minified and compressed, without its peers. */
async function weight(...from) {
  const input = join(dir, 'page.mjs');
  writeFileSync(input, from.map(e => `export * from '${join(manifest.name, e)}';`).join('\n'));
  const bundle = await rolldown({ input, external: /^(ai|react|@ai-sdk\/react)(\/|$)/, logLevel: 'silent', cwd: dir });
  const { output } = await bundle.generate({ format: 'esm', minify: true });
  await bundle.close();
  return gzipSync(output[0].code, { level: 9 }).length;
}

test('a page pays under 8 kB for the client, and under 6 kB beside it for the hooks', async t => {
  const [fetch, client, both] = [await weight('fetch'), await weight('client'), await weight('client', 'react')];
  t.diagnostic(`gzipped: fetch ${fetch}, client ${client}, client and hooks ${both} bytes`);
  assert.ok(client < 8_000, `the client has ${client} bytes`);
  assert.ok(both - client < 6_000, `the hooks have ${both - client} bytes`);
  assert.ok(fetch < client, 'one entry brings the others with it');
});
