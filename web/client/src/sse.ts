/** One server-sent event as it came, with what a resuming reader needs to know of it. */
export interface SSEBlock {
  /** The block's text with its blank line, to be passed on unchanged. */
  raw: string;
  /** The value of its `id:` line. */
  id?: string;
  /** Its `data:` lines joined, or undefined for comments and bare ids. */
  data?: string;
}

const blank = /\r\n\r\n|\n\n|\r\r/g;

/** Cuts an SSE text stream into events. Whatever the stream ends with is never a whole event and is dropped. */
export class SSESplitter {
  #rest = '';

  push(text: string): SSEBlock[] {
    // A border may span the old end and the new text, by at most three characters.
    const from = Math.max(0, this.#rest.length - 3);
    this.#rest += text;
    const blocks: SSEBlock[] = [];
    let start = 0;
    blank.lastIndex = from;
    for (let m = blank.exec(this.#rest); m; m = blank.exec(this.#rest)) {
      blocks.push(parseBlock(this.#rest.slice(start, blank.lastIndex)));
      start = blank.lastIndex;
    }
    if (start > 0) this.#rest = this.#rest.slice(start);
    return blocks;
  }
}

function parseBlock(raw: string): SSEBlock {
  const block: SSEBlock = { raw };
  for (const line of raw.split(/\r\n|\n|\r/)) {
    if (line.startsWith('data:')) {
      const value = line.slice(line[5] === ' ' ? 6 : 5);
      block.data = block.data === undefined ? value : `${block.data}\n${value}`;
    } else if (line.startsWith('id:')) {
      block.id = line.slice(line[3] === ' ' ? 4 : 3);
    }
  }
  return block;
}
