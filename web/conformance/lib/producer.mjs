// An agent elsewhere, which writes a session's run over HTTP.
import assert from 'node:assert/strict';

/** Claims a session; what it returns appends chunks, in order. */
export async function claim(url, session) {
  let seq = 0;
  const post = async (query, body, headers = {}) => {
    const response = await fetch(`${url}/stream/${session}${query}`, { method: 'POST', body, headers });
    assert.equal(response.ok, true, await response.clone().text());
    return response.json();
  };
  const { epoch } = await post('?claim', '');
  return (...chunks) => {
    const at = seq;
    seq += chunks.length;
    return post('', chunks.map(c => JSON.stringify(c)).join('\n'), { 'Producer-Epoch': String(epoch), 'Producer-Seq': String(at) });
  };
}
