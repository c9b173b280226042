// What the Markdown parser is given. It recurses once for each level of quotes and lists,
// and some texts cost it time that grows with the square of their length: a model, or what
// a model has read, could empty or freeze the page with a few kilobytes. Nobody writes such
// texts to be read; they are shown as they are.

/** The longest text that is taken for Markdown, and the longest list, in characters. */
const longest = 1_000_000;
const longestList = 64_000;
/** How many blocks (paragraphs, lists, blank lines, …) a text may have. */
export const mostBlocks = 10_000;
/** How deep quotes and lists may be nested. */
const deepest = 40;
/** How many lines of a list may follow each other without a blank line or an item's marker. */
const mostLines = 1_000;
/** How many characters of a paragraph may be signs of emphasis, links and the like. */
const mostSigns = 1_000;

const line = /[^\n]*\n?/g;
const containers = /^(?:[ \t]*(?:>|[-+*](?=[ \t]|$)|\d{1,9}[.)](?=[ \t]|$)))+/;
const container = />|[-+*]|\d+[.)]/g;
const fence = /^ {0,3}(`{3,}|~{3,})/;
const sign = /[*_~`[\]<&\\|]|:\/\/|www\.|@/g;

/**
 * Whether a text can be parsed as Markdown in a time and at a depth that are bounded. Of a
 * text that only grew, just the new lines are looked at.
 */
export class Readable {
  #seen = ''; // whole lines
  #scan = new Scan();
  #hard = false;

  check(text: string): boolean {
    if (text.length > longest) return false;
    if (!text.startsWith(this.#seen)) {
      this.#seen = '';
      this.#scan = new Scan();
      this.#hard = false;
    }
    const whole = text.lastIndexOf('\n') + 1;
    if (!this.#hard) this.#hard = !takesAll(this.#scan, text.slice(this.#seen.length, whole));
    this.#seen = text.slice(0, whole);
    return !this.#hard && this.#scan.copy().takes(text.slice(whole));
  }
}

function takesAll(scan: Scan, text: string): boolean {
  for (const [raw] of text.matchAll(line)) if (!scan.takes(raw)) return false;
  return true;
}

/** Counts what is costly, from line to line. */
class Scan {
  #fence: string | undefined; // the marks that close the code at the top level
  #list = 0; // characters since a list began; 0 outside of one
  #lines = 0;
  #signs = 0;

  copy(): Scan {
    const copy = new Scan();
    copy.#fence = this.#fence;
    copy.#list = this.#list;
    copy.#lines = this.#lines;
    copy.#signs = this.#signs;
    return copy;
  }

  takes(raw: string): boolean {
    const text = raw.trimEnd();
    if (this.#fence !== undefined) {
      if (text.trimStart().startsWith(this.#fence)) this.#fence = undefined;
      return true;
    }
    const marks = containers.exec(text)?.[0];
    if (this.#list > 0 && text !== '' && marks === undefined && this.#lines === 0 && !/^[ \t]/.test(text)) this.#list = 0;
    if (this.#list === 0) {
      this.#fence = fence.exec(text)?.[1];
      if (this.#fence !== undefined) return true;
    }
    if (text === '' || marks !== undefined) this.#lines = this.#signs = 0;
    if (text === '') return true;
    if (marks !== undefined || this.#list > 0) this.#list += raw.length;
    if (this.#list > 0) this.#lines++;
    this.#signs += text.match(sign)?.length ?? 0;
    return depth(marks) <= deepest && this.#list <= longestList && this.#lines <= mostLines && this.#signs <= mostSigns;
  }
}

function depth(marks: string | undefined): number {
  if (marks === undefined) return 0;
  const indent = /^[ \t]*/.exec(marks)![0].replaceAll('\t', '    ').length;
  return (marks.match(container)?.length ?? 0) + (indent >> 1);
}
