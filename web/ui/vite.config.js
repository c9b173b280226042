import { fileURLToPath } from 'node:url';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// SPOOL points the dev server at a running `spool serve`.
const target = process.env.SPOOL ?? 'http://127.0.0.1:8080';

export default defineConfig({
  base: './', // the page may be mounted under a prefix
  plugins: [react()],
  resolve: {
    alias: Object.fromEntries(['client', 'react'].map(name => [`@spool-run/${name}`, fileURLToPath(new URL(`../${name}/src/index.ts`, import.meta.url))])),
    dedupe: ['ai', 'react', 'react-dom'],
  },
  build: {
    target: 'es2022',
    modulePreload: false,
    chunkSizeWarningLimit: 1000,
    reportCompressedSize: false,
    rolldownOptions: { input: ['index.html', 'inspect.html'].map(page => fileURLToPath(new URL(page, import.meta.url))) },
  },
  server: { proxy: Object.fromEntries(['/api', '/stream', '/sessions'].map(path => [path, { target }])) },
});
