package cli

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/wire/wiretest"
)

var keepLogs = flag.String("keep-logs", "", "folder for the databases that the tests of what is written write, to be stored in testdata/logs")

// Databases to be stored have sessions besides that come out differently every
// time, which nothing can be compared with today.
func storing() bool { return *keepLogs != "" }

// What is run today becomes the log that it became under the version that wrote the
// latest stored ones, but for ids and times.
func TestRunsAreWrittenUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	db := filepath.Join(t.TempDir(), "runs.db")
	floors := playPlainScenes(t, db)
	playRecordings(t, db)
	if storing() {
		playHeldScenes(t, db)
	}
	for session, f := range floors {
		trim(t, db, session, f[0], f[1])
	}
	scenes := append(slices.Clone(plainScenes), scene{session: "trimmed"}, scene{session: "trimmed-half"})
	for from, names := range recordings {
		for _, name := range names {
			scenes = append(scenes, scene{session: from + " " + name})
		}
	}
	compareLogs(t, "runs", db, scenes)
	if !storing() {
		golden(t, filepath.Join(latestLogs(t), "no-replay.txt"), notReplayed(t, db))
	}
}

// notReplayed is what readers without a position get whom nothing is replayed for:
// only of sessions that this machine's clock has seen end can that be said.
func notReplayed(t *testing.T, db string) *answers {
	s, all := serveSpool(t, db, "--replay-grace", "0s"), &answers{}
	for _, session := range []string{"hello", "fail", "waits-approval", "agent-approved", "agent-approved.1", "rolled-back-only", "branched", "produced"} {
		seen := names{}
		for _, q := range []question{get(chatPath(session)), get(chatPath(session) + "/stream?ui=7"), get("/merlin/v1/" + session), get("/merlin/v2/" + session),
			get(chatPath(session), "X-Resume-From-Sequence: 1"), get(chatPath(session) + "?startIndex=-2"), {"HEAD", chatPath(session), nil}} {
			all.add(q.name(session)+" of "+session, seen.normal(s.question(q).whole()))
		}
	}
	s.end()
	return all
}

// So do runs of programs with agents of their own.
func TestLibraryRunsAreWrittenUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	dir := t.TempDir()
	db := filepath.Join(dir, "library.db")
	writeLibraryLogs(t, db)
	var scenes []scene
	for _, c := range libraryScenes {
		if !c.once {
			scenes = append(scenes, scene{session: c.session, racing: true})
		}
	}
	compareLogs(t, "library", db, scenes)
	for name, records := range map[string][]chunk.Record{"wires": wiretest.Corpus(), "wires-agents": wiretest.Agents()} {
		db := filepath.Join(dir, name+".db")
		writeWireLogs(t, db, records)
		compareLogs(t, name, db, []scene{{session: wiretest.Session}})
	}
}

// And runs that are lost today are recovered as those that were lost then.
func TestLostRunsAreWrittenUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	db := filepath.Join(t.TempDir(), "lost.db")
	loseRuns(t, newHolder(t), db)
	if storing() {
		pack(t, db, "lost")
		return
	}
	dir, again := latestLogs(t), copyStore(t, db)
	compareAnswers(t, "recovered", superseded(alike(goldenAnswers(t, filepath.Join(dir, "recovered.txt")))), alike(recovered(t, db)))
	compareAnswers(t, "not recovered", superseded(alike(goldenAnswers(t, filepath.Join(dir, "not-recovered.txt")))), alike(recovered(t, again, "--no-recover")))
}

// compareLogs compares what a database's sessions show with what the stored ones
// do, or packs it to be stored.
func compareLogs(t *testing.T, name, db string, scenes []scene) {
	t.Helper()
	if storing() {
		pack(t, db, name)
		return
	}
	scenes = slices.DeleteFunc(scenes, func(s scene) bool { return s.reworded })
	then := unpack(t, filepath.Join(latestLogs(t), name+".db.gz"))
	if sql := changed[name]; sql != "" {
		execSQL(t, then, sql)
	}
	switch name {
	case "wires-agents":
	case "wires":
		insertHandOver(t, then)
	default: // written by an owner
		insertErrors(t, then)
	}
	compareAnswers(t, name, shownBy(t, then, scenes), shownBy(t, db, scenes))
}

// reference is a member that names a sequence.
var reference = regexp.MustCompile(`"(?:first|fromSequence)":(\d+)`)

// insertErrors puts the error of each failed run before the run's end, where it is
// written now.
func insertErrors(t *testing.T, db string) {
	t.Helper()
	d, err := sql.Open("sqlite", db)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	type end struct {
		sid, seq, time int64
		agent, data    string
	}
	rows, err := d.Query("SELECT sid, seq, time, agent, data FROM record WHERE type = 'run_finished' AND data LIKE '%\"outcome\":\"failed\"%' ORDER BY seq DESC")
	if err != nil {
		t.Fatal(err)
	}
	var ends []end
	for rows.Next() {
		var e end
		if err := rows.Scan(&e.sid, &e.seq, &e.time, &e.agent, &e.data); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, e := range ends { // the last one first, so that the others keep their places
		c, err := chunk.Decode([]byte(e.data))
		if err != nil {
			t.Fatal(err)
		}
		finished := c.(*chunk.RunFinished)
		failure := &chunk.ErrorChunk{Base: finished.Base, Error: finished.Error, Code: finished.Code, Recoverable: finished.Recoverable, Fatal: true}
		err = d.QueryRow("SELECT json_extract(data, '$.step') FROM record WHERE sid = ? AND seq < ? AND json_extract(data, '$.runId') = ? ORDER BY seq DESC", e.sid, e.seq, failure.RunID).Scan(&failure.Step)
		if err != nil {
			t.Fatal(err)
		}
		data, err := chunk.Append(nil, failure)
		if err != nil {
			t.Fatal(err)
		}
		insertRecord(t, d, e.sid, e.seq, chunk.Record{Type: chunk.TypeError, Agent: e.agent, Time: e.time, Data: data})
	}
}

// insertRecord puts a kept record before the one that has its sequence.
func insertRecord(t *testing.T, d *sql.DB, sid, seq int64, r chunk.Record) {
	t.Helper()
	for _, s := range []string{
		"UPDATE record SET seq = -seq - 1 WHERE sid = ?1 AND seq >= ?2", "UPDATE record SET seq = -seq WHERE sid = ?1 AND seq < 0",
		"UPDATE session SET seq = seq + 1 WHERE sid = ?1", "DELETE FROM fold WHERE sid = ?1",
	} {
		if _, err := d.Exec(s, sid, seq); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Exec("INSERT INTO record VALUES (?, ?, ?, ?, ?, 0, ?)", sid, seq, string(r.Type), r.Agent, r.Time, string(r.Data)); err != nil {
		t.Fatal(err)
	}
	moveReferences(t, d, sid, seq)
}

// insertHandOver puts into the wires' corpus the record of a hand-over, which there was
// not then, where the corpus has it now.
func insertHandOver(t *testing.T, db string) {
	t.Helper()
	at := slices.IndexFunc(wiretest.Corpus(), func(r chunk.Record) bool { return r.Type == chunk.TypeExecutorHandedOver })
	d, err := sql.Open("sqlite", db)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := wiretest.Corpus()[at]
	insertRecord(t, d, 1, int64(r.Seq), r)
}

// moveReferences makes a session's records name the sequences from one on by the next.
func moveReferences(t *testing.T, d *sql.DB, sid, from int64) {
	t.Helper()
	rows, err := d.Query("SELECT seq, data FROM record WHERE sid = ? AND seq > ?", sid, from)
	if err != nil {
		t.Fatal(err)
	}
	moved := map[int64]string{}
	for rows.Next() {
		var seq int64
		var data string
		if err := rows.Scan(&seq, &data); err != nil {
			t.Fatal(err)
		}
		moved[seq] = reference.ReplaceAllStringFunc(data, func(s string) string {
			name, number, _ := strings.Cut(s, ":")
			if n, err := strconv.ParseInt(number, 10, 64); err == nil && n >= from {
				return fmt.Sprint(name, ":", n+1)
			}
			return s
		})
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for seq, data := range moved {
		if _, err := d.Exec("UPDATE record SET data = ? WHERE sid = ? AND seq = ?", data, sid, seq); err != nil {
			t.Fatal(err)
		}
	}
}

// changed is what is written differently on purpose, done to what was written then.
var changed = map[string]string{
	// The title of a session that begins with a large message was cut by bytes.
	"runs": "UPDATE session SET title = substr(title, 1, 79) || '…' WHERE id = 'large';" +
		// The scripted provider's error was reworded.
		"UPDATE record SET data = replace(data, 'the scripted provider failed in mid-answer, as asked', 'the scripted provider failed in the middle of its answer, as requested');" +
		// What another process wrote to end a run did not name the run's agent.
		`UPDATE record SET data = replace(data, '"agentType":""', '"agentType":"demo"') WHERE type IN ('executor_superseded', 'run_finished')
			AND json_extract(data, '$.agentType') = '' AND json_extract(data, '$.runId') IN
			(SELECT json_extract(data, '$.runId') FROM record WHERE type = 'run_started' AND json_extract(data, '$.agentType') = 'demo');` +
		// A citation did not say which of the given documents it is from.
		indexed(`"The grass is green."`, 0) + indexed(`"p. 5"`, 1) + indexed(`"very old"`, 1) +
		`UPDATE record SET data = replace(data, ',"documentIndex":1', '') WHERE data LIKE '%"url":"https://b.example"%';`,
}

// indexed adds the index of its document to what cites a text.
func indexed(text string, index int) string {
	return fmt.Sprintf(`UPDATE record SET data = replace(data, '"citedText":%s', '"citedText":%[1]s,"documentIndex":%d') WHERE type IN ('citation', 'assistant_message');`, text, index)
}

func latestLogs(t *testing.T) string {
	t.Helper()
	dirs := storedLogs(t)
	return dirs[len(dirs)-1]
}

// playHeldScenes plays the scenes of runs that are held up.
func playHeldScenes(t *testing.T, db string) {
	h := newHolder(t)
	// Slow enough that the model has more to say while a run is held.
	s := serveSpoolGated(t, db, h.url, "--demo-rate", "1000")
	for _, c := range heldScenes(h) {
		c.play(s, c.session)
	}
	stopHung(h, s, db)
}

// playPlainScenes returns the watermarks that retention is to set in the end.
func playPlainScenes(t *testing.T, db string) map[string][2]uint64 {
	s := serveSpool(t, db)
	for _, c := range plainScenes {
		c.play(s, c.session)
	}
	floors := map[string][2]uint64{"produced-long": {s.info("produced-long").Latest - 500, 300}}
	for session, part := range map[string]uint64{"trimmed": 1, "trimmed-half": 2} {
		saying("hello", "branch", "research", "think")(s, session)
		floors[session] = [2]uint64{s.info(session).Latest / part}
	}
	s.end()
	return floors
}

// pack stores a database's files compressed. One that was closed is written again
// first, without what it has deleted.
func pack(t *testing.T, db, name string) {
	closed := filepath.Join(t.TempDir(), name+".db")
	if _, err := os.Stat(db + "-wal"); err != nil {
		execSQL(t, db, "VACUUM INTO '"+closed+"'")
		db = closed
	}
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(db + suffix)
		if suffix != "" && os.IsNotExist(err) {
			continue
		}
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err == nil {
			_, err = w.Write(data)
		}
		if err == nil {
			err = w.Close()
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(*keepLogs, name+".db"+suffix+".gz"), packed.Bytes(), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes, packed %d", name+suffix, len(data), packed.Len())
	}
}

// alike leaves out the runs that are lost at another place every time.
func alike(a *answers) *answers {
	for _, r := range append(lostRuns, lostRun{session: "lost-stopped", were: true}) {
		if r.were {
			delete(a.texts, r.session)
			a.names = slices.DeleteFunc(a.names, func(name string) bool { return name == r.session })
		}
	}
	return a
}

// superseded says of a run that was lost twice why its first owner was superseded, as it
// is said now.
func superseded(a *answers) *answers {
	for name, text := range a.texts {
		a.texts[name] = strings.ReplaceAll(text, "the lease of the previous owner expired", "the lease of the previous owner ended")
	}
	return a
}

// shownBy is what a database's sessions show, and how they are stored.
func shownBy(t *testing.T, db string, scenes []scene) *answers {
	s, all := serveSpool(t, db), &answers{}
	for _, c := range scenes {
		all.add(c.session, s.shown(c.session, c.racing))
	}
	s.end()
	for _, c := range scenes {
		all.add(c.session+", stored", storedAs(t, db, c))
	}
	return all
}

// storedAs is a session's row, and which of its records are kept and which only
// trace.
func storedAs(t *testing.T, db string, c scene) string {
	d, err := sql.Open("sqlite", db)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	row := "SELECT alive, incarnation, trace_floor, floor, status, due, agent, principal, title, lease_owner, trace_trimmed, trimmed FROM session WHERE id = ?"
	records := "SELECT r.seq, r.type, r.agent, r.trace FROM record r JOIN session s USING (sid) WHERE s.id = ? ORDER BY r.seq"
	if c.racing {
		row = "SELECT alive, incarnation, status, due, agent, principal, title, lease_owner FROM session WHERE id = ?"
		records = "SELECT DISTINCT r.type, r.trace FROM record r JOIN session s USING (sid) WHERE s.id = ? ORDER BY r.type, r.trace"
	}
	var b strings.Builder
	for _, query := range []string{row, records} {
		rows, err := d.Query(query, c.session)
		if err != nil {
			t.Fatal(err)
		}
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&b, values...)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func copyStore(t *testing.T, db string) string {
	to := filepath.Join(t.TempDir(), "copy.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(db + suffix)
		if err == nil {
			err = os.WriteFile(to+suffix, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}
