import type { ServerInfo } from './api';

// What the scripted model can show.
const scenes = [
  ['hello', 'A short answer'],
  ['think', 'Reasoning first'],
  ['tools', 'Tools, steps, progress'],
  ['long', 'An essay of a few minutes'],
  ['approve', 'A call that needs your approval'],
  ['meanwhile', 'Approve a call while another one runs'],
  ['client-tool', 'A call that this page executes'],
  ['agents', 'Two sub-agents in parallel'],
  ['agents-approve', 'A sub-agent asks for approval'],
  ['branch', 'Checkpoints: rewind or branch'],
  ['fail', 'Fails in the middle of the answer'],
] as const;

// For any model: answers that are long enough to reload in.
const openings = [
  ['Explain', 'How does a vinyl record hold music? Explain it step by step.'],
  ['Write', 'Write a short story about a lighthouse keeper who gets a letter from the sea.'],
  ['Compare', 'Compare trains, planes and ferries for a trip through Europe, in a table.'],
  ['Plan', 'Plan three dinners for a busy week, with one shopping list for all of them.'],
  ['Code', 'Write a function that finds the longest palindrome in a text, and explain it.'],
  ['Think', 'Three friends share a bill of 47.50 and tip 12%. What does each pay?'],
] as const;

/** What an empty chat shows: what one can do with the model that answers. */
export function Welcome({ info, onPick }: { info: ServerInfo | undefined; onPick(text: string): void }) {
  return (
    <div className="welcome" data-demo={info?.demo || undefined}>
      <h2>{info && !info.demo && info.model ? <>Ask <span className="welcome-model">{nameOf(info.model)}</span> anything</> : 'Start a chat'}</h2>
      <p>Every word is stored before you see it. Reload the page in the middle of a sentence, open a second tab or lose the network: the answer continues.</p>
      {info && (
        <ul className="scenes">
          {(info.demo ? scenes : openings).map(([word, what]) => (
            <li key={word}>
              <button type="button" onClick={() => onPick(info.demo ? word : what)}>
                <strong>{word}</strong>
                <span>{what}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** A model's own name, without its provider and its options. */
const nameOf = (model: string) => model.replace(/^[a-z-]+:/, '').replace(/\?.*$/, '');
