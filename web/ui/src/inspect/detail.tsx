import { Fragment, useEffect, useState } from 'react';
import { asText } from '../guard';
import { getJSON, ServerSource, wires, type Page, type Source, type StoredRecord } from './source';
import { clock } from './words';

/** A record as it is stored. */
export function RecordDetail({ record }: { record: StoredRecord | undefined }) {
  if (!record) return <p className="quiet">Select a record.</p>;
  return (
    <>
      <p className="quiet">
        Record {record.sequence} · {record.class} · {clock(record.time)}
      </p>
      <pre className="json" tabIndex={0}>
        {asText(record.chunk)}
      </pre>
    </>
  );
}

const shown = 40; // records

/** The records from one on, as the frames of several wires. */
export function Frames({ source, from }: { source: Source; from: number | undefined }) {
  const [chosen, setChosen] = useState<string[]>(['native', 'aisdk&ui=6']);
  const [pages, setPages] = useState<Record<string, StoredRecord[] | string>>({});
  const api = source instanceof ServerSource ? source.api : undefined;
  useEffect(() => {
    if (api === undefined || from === undefined) return;
    const left = new AbortController();
    setPages({});
    for (const wire of chosen) {
      getJSON<Page>(`${api}/records?after=${from - 1}&limit=${shown}&wire=${wire}`, left.signal).then(
        page => setPages(p => ({ ...p, [wire]: page.records })),
        (error: Error) => left.signal.aborted || setPages(p => ({ ...p, [wire]: error.message })),
      );
    }
    return () => left.abort();
  }, [api, from, chosen]);
  if (api === undefined) return <p className="quiet">A file has no frames: they are made by a server.</p>;
  if (from === undefined) return <p className="quiet">Select a record.</p>;
  const lists = chosen.map(w => pages[w]);
  const records = lists.find(l => Array.isArray(l)) as StoredRecord[] | undefined;
  return (
    <>
      <fieldset className="choices">
        <legend>What these wires send, from record {from} on</legend>
        {wires.map(([label, query]) => (
          <label key={query}>
            <input type="checkbox" checked={chosen.includes(query)} onChange={e => setChosen(c => (e.target.checked ? [...c, query] : c.filter(w => w !== query)))} />
            {label}
          </label>
        ))}
      </fieldset>
      <div className="frames" tabIndex={0} role="region" aria-label="Frames">
        <table>
          <thead>
            <tr>
              {chosen.map(w => (
                <th key={w}>{wires.find(([, q]) => q === w)![0]}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {records?.map((r, row) => (
              <Fragment key={r.sequence}>
                <tr className="frames-record">
                  <th scope="rowgroup" colSpan={chosen.length}>
                    {r.sequence} <code>{r.chunk.type}</code>
                  </th>
                </tr>
                <tr>
                  {lists.map((list, i) => (
                    <td key={chosen[i]}>{typeof list === 'string' ? row === 0 && list : <FrameText frames={list?.[row]?.frames} known={list !== undefined} />}</td>
                  ))}
                </tr>
              </Fragment>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function FrameText({ frames, known }: { frames: string[] | undefined; known: boolean }) {
  if (!known) return null;
  if (frames === undefined) return <span className="quiet">trimmed</span>;
  if (frames.length === 0) return <span className="quiet">–</span>;
  return <pre>{frames.map(f => f.trimEnd()).join('\n')}</pre>;
}
