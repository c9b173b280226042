// Servers of the tests, on a free port of this machine.

/** Starts it, and returns its address. */
export async function listen(server) {
  await new Promise(done => server.listen(0, '127.0.0.1', done));
  return `http://127.0.0.1:${server.address().port}`;
}

/** Ends an HTTP server with all its connections. */
export function close(server) {
  server.closeAllConnections();
  server.close();
}
