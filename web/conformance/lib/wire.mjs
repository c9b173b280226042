// A wire between the page and the server that can be cut.
import { connect, createServer } from 'node:net';

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
  await new Promise(done => server.listen(0, '127.0.0.1', done));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
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
