interface Delta {
  type: string;
  id?: string;
  toolCallId?: string;
  delta?: string;
  inputTextDelta?: string;
  providerMetadata?: unknown;
}

/**
 * Joins deltas of one part that follow each other within `ms` milliseconds, so
 * that a fast answer costs the page a few updates a second and not thousands.
 * The first one passes at once. What they fold to is the same.
 */
export function joinDeltas<Chunk extends { type: string }>(ms: number): TransformStream<Chunk, Chunk> {
  let pending: Chunk | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = -Infinity;
  const flush = (controller: TransformStreamDefaultController<Chunk>) => {
    clearTimeout(timer);
    timer = undefined;
    if (pending === undefined) return;
    const chunk = pending;
    pending = undefined;
    last = performance.now();
    controller.enqueue(chunk);
  };
  return new TransformStream<Chunk, Chunk>({
    transform(chunk, controller) {
      if (pending !== undefined) {
        const joined = join(pending as Delta, chunk as Delta);
        if (joined !== undefined) {
          pending = joined as unknown as Chunk;
          return;
        }
        flush(controller);
      }
      const wait = last + ms - performance.now();
      if (!isDelta(chunk) || wait <= 0) {
        if (isDelta(chunk)) last = performance.now();
        controller.enqueue(chunk);
        return;
      }
      pending = chunk;
      timer = setTimeout(() => {
        try {
          flush(controller);
        } catch {
          // The reader has left.
        }
      }, wait);
    },
    flush,
  });
}

function isDelta(chunk: Delta): boolean {
  return chunk.type === 'text-delta' || chunk.type === 'reasoning-delta' || chunk.type === 'tool-input-delta';
}

function join(a: Delta, b: Delta): Delta | undefined {
  if (a.type !== b.type || !isDelta(a) || a.providerMetadata !== undefined || b.providerMetadata !== undefined) return undefined;
  if (a.type === 'tool-input-delta') {
    if (a.toolCallId !== b.toolCallId) return undefined;
    return { ...a, inputTextDelta: (a.inputTextDelta ?? '') + (b.inputTextDelta ?? '') };
  }
  if (a.id !== b.id) return undefined;
  return { ...a, delta: (a.delta ?? '') + (b.delta ?? '') };
}
