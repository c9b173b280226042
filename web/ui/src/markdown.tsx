import DOMPurify from 'dompurify';
import { Lexer, marked } from 'marked';
import { memo, useRef } from 'react';
import { Copy } from './copy';
import { Guard, Source } from './guard';
import { mostBlocks, Readable } from './markdown-limits';

// Images are left out: a model's text could use one to send what it read elsewhere.
const allowed = {
  ALLOWED_TAGS: 'p br hr strong em del code pre blockquote ul ol li a h1 h2 h3 h4 h5 h6 table thead tbody tr th td sub sup'.split(' '),
  ALLOWED_ATTR: ['href', 'title', 'align', 'start', 'class'],
};

DOMPurify.addHook('afterSanitizeAttributes', node => {
  if (node.tagName === 'A') {
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer');
  }
  if (node.hasAttribute('class') && !/^language-[\w+#-]+$/.test(node.className)) node.removeAttribute('class');
});

// A box to tick would be a control that does nothing.
marked.use({ renderer: { checkbox: ({ checked }) => (checked ? '☑ ' : '☐ ') } });

const Block = memo(function Block({ source, stale }: { source: string; stale: boolean }) {
  const html = DOMPurify.sanitize(marked.parse(source, { async: false, gfm: true }), allowed);
  const block = <div className="block" dir="auto" data-stale={stale || undefined} dangerouslySetInnerHTML={{ __html: html }} />;
  if (!/^ {0,3}(```|~~~)/.test(source)) return block;
  return (
    <div className="code-block">
      {block}
      <Copy label="Copy the code" text={button => button.parentElement?.querySelector('code')?.textContent ?? ''} />
    </div>
  );
});

interface Cut {
  text: string;
  blocks: string[];
}

/** Cuts Markdown into its top-level blocks; of a text that only grew, just its end is looked at again. */
function cut(text: string, before: Cut): Cut {
  let blocks: string[] = [];
  let from = 0;
  if (before.text !== '' && text.startsWith(before.text)) {
    // What is written next can still change the last block, and the blank lines before it.
    blocks = before.blocks.slice(0, -3);
    for (const block of blocks) from += block.length;
  }
  const end = text.slice(from);
  const fresh = new Lexer({ gfm: true }).blockTokens(end, []).map(token => token.raw);
  // The lexer rewrites line ends and tabs; then lengths no longer lead back into the text.
  return { text: fresh.join('') === end ? text : '', blocks: blocks.concat(fresh) };
}

interface Props {
  text: string;
  /** How many of its first characters are certain, where the rest is about to be replaced. */
  solid?: number | undefined;
}

/** Text as Markdown; what cannot be taken for that is shown as it is. */
export const Markdown = memo(function Markdown({ text, solid }: Props) {
  const readable = useRef<Readable>(undefined);
  const last = useRef<Cut>({ text: '', blocks: [] });
  readable.current ??= new Readable();
  if (!readable.current.check(text)) return <Source value={text} />;
  return (
    <Guard source={text}>
      <Blocks text={text} solid={solid} last={last} />
    </Guard>
  );
});

function Blocks({ text, solid = Infinity, last }: Props & { last: { current: Cut } }) {
  if (last.current.text !== text) last.current = cut(text, last.current);
  const { blocks } = last.current;
  if (blocks.length > mostBlocks) return <Source value={text} />;
  let end = 0;
  return (
    <div className="md" data-long={blocks.length > 80 || undefined}>
      {blocks.map((source, i) => {
        end += source.length;
        if (source.trim() === '') return null;
        return (
          <Guard key={i} source={source}>
            <Block source={source} stale={end > solid} />
          </Guard>
        );
      })}
    </div>
  );
}
