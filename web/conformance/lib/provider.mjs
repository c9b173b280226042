// A provider of chat completions that always says the same.
import { createServer } from 'node:http';

export async function startProvider(says) {
  const asked = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const piece of request) body += piece;
    if (request.method !== 'POST') return response.writeHead(404).end();
    asked.push(JSON.parse(body));
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const event = choice => response.write(`data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', choices: [{ index: 0, ...choice }] })}\n\n`);
    for (const content of says) event({ delta: { content } });
    event({ delta: {}, finish_reason: 'stop' });
    response.end('data: [DONE]\n\n');
  });
  await new Promise(done => server.listen(0, '127.0.0.1', done));
  return {
    url: `http://127.0.0.1:${server.address().port}/v1`,
    asked,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
