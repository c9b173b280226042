// A provider of chat completions that always says the same.
import { createServer } from 'node:http';
import { close, listen } from './local.mjs';

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
  const url = await listen(server);
  return {
    url: `${url}/v1`,
    asked,
    close: () => close(server),
  };
}
