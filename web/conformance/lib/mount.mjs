// A proxy that mounts a server under a prefix and takes the prefix off again.
import { createServer, request } from 'node:http';
import { close, listen } from './local.mjs';

export async function startMount(target, prefix) {
  const strays = [];
  const server = createServer((incoming, outgoing) => {
    if (!incoming.url.startsWith(`${prefix}/`)) {
      strays.push(incoming.url);
      outgoing.writeHead(404).end();
      return;
    }
    const { hostname, port } = new URL(target);
    const forward = request({ hostname, port, path: incoming.url.slice(prefix.length), method: incoming.method, headers: incoming.headers }, answer => {
      outgoing.writeHead(answer.statusCode, answer.headers);
      answer.pipe(outgoing);
    });
    forward.on('error', () => outgoing.destroy());
    outgoing.on('close', () => forward.destroy());
    incoming.pipe(forward);
  });
  const url = await listen(server);
  return {
    url: `${url}${prefix}`,
    /** What was asked for outside the prefix. */
    strays,
    close: () => close(server),
  };
}
