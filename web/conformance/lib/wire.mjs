// A wire between the page and the server that can be cut.
import { connect, createServer } from 'node:net';
import { listen } from './local.mjs';

export async function startWire(target) {
  const { hostname, port } = new URL(target);
  const sockets = new Set();
  let down = false;
  const server = createServer(socket => {
    if (down) return socket.destroy();
    const far = connect(Number(port), hostname);
    for (const [a, b] of [
      [socket, far],
      [far, socket],
    ]) {
      sockets.add(a);
      a.pipe(b);
      a.on('error', () => b.destroy());
      a.on('close', () => {
        sockets.delete(a);
        b.destroy();
      });
    }
  });
  const url = await listen(server);
  return {
    url,
    cut() {
      down = true;
      for (const socket of sockets) socket.destroy();
    },
    mend() {
      down = false;
    },
    close() {
      this.cut();
      server.close();
    },
  };
}
