package redisstore

import (
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/watch"
)

// row is a session as scripts answer it.
type row struct {
	exists  bool
	info    spool.SessionInfo
	version int64
}

// rowNumbers is how many numbers an answered row begins with.
const rowNumbers = 12

// parseRow parses a row as scripts answer it: numbers and then texts, see row in
// lua/common.lua.
func parseRow(session, text string) (r row, ok bool) {
	numbers, rest, _ := strings.Cut(text, "\x00")
	var n [rowNumbers]uint64
	for i := range n {
		var number string
		number, numbers, _ = strings.Cut(numbers, " ")
		var err error
		if n[i], err = strconv.ParseUint(number, 10, 64); err != nil {
			return row{}, false
		}
	}
	texts := strings.SplitN(rest, "\x00", 4)
	if len(texts) != 4 {
		return row{}, false
	}
	h := spool.Head{Seq: n[1], Incarnation: n[2], Epoch: n[3], TraceFloor: n[4], Floor: n[5], Due: int64(n[6]), Pending: n[7] == 1, Hidden: n[8] == 1,
		Status: chunk.Status(texts[0]), Principal: texts[1]}
	return row{n[0] == 1, spool.SessionInfo{Session: session, Head: h, Updated: int64(n[9]), Bytes: int64(n[10]),
		Row: spool.Row{Status: h.Status, Agent: texts[2], Principal: h.Principal, Title: texts[3]}}, int64(n[11])}, true
}

func (r reply) row(i int, session string) row {
	parsed, _ := parseRow(session, r.text(i))
	return parsed
}

func (r *row) state(records []chunk.Record) watch.State {
	return watch.State{Exists: r.exists, Head: r.info.Head, Version: r.version, Records: records}
}

// header is what a record has beside its class and data. Names have no zero bytes.
func header(r *chunk.Record) string {
	return string(r.Type) + "\x00" + r.Agent + "\x00" + strconv.FormatInt(r.Time, 10)
}

func parseRecord(class chunk.Class, header string, data []byte) chunk.Record {
	r := chunk.Record{Class: class, Data: data}
	typ, rest, _ := strings.Cut(header, "\x00")
	agent, at, _ := strings.Cut(rest, "\x00")
	r.Type, r.Agent = chunk.Type(typ), agent
	r.Time, _ = strconv.ParseInt(at, 10, 64)
	return r
}

// classKey is the class's stream.
func classKey(c chunk.Class) string {
	if c == chunk.Kept {
		return "k"
	}
	return "t"
}

func classOf(key string) chunk.Class {
	if key == "k" {
		return chunk.Kept
	}
	return chunk.Trace
}

// entries parses a page of a stream.
func entries(class chunk.Class, list []rueidis.RedisMessage) []chunk.Record {
	out := make([]chunk.Record, 0, len(list))
	for i := range list {
		e, _ := list[i].ToArray()
		if len(e) != 2 {
			continue
		}
		id, _ := e[0].ToString()
		fields, _ := e[1].ToArray()
		if len(fields) != 4 {
			continue
		}
		head, _ := fields[1].ToString()
		data, _ := fields[3].AsBytes()
		r := parseRecord(class, head, data)
		_, seq, _ := strings.Cut(id, "-")
		r.Seq, _ = strconv.ParseUint(seq, 10, 64)
		out = append(out, r)
	}
	return out
}

// merged returns the records of both streams in order, up to the first that is missing.
func merged(after uint64, kept, trace []chunk.Record) []chunk.Record {
	out := make([]chunk.Record, 0, len(kept)+len(trace))
	for {
		after++
		switch {
		case len(kept) > 0 && kept[0].Seq == after:
			out, kept = append(out, kept[0]), kept[1:]
		case len(trace) > 0 && trace[0].Seq == after:
			out, trace = append(out, trace[0]), trace[1:]
		default:
			return out
		}
	}
}

// page returns as many of the first records as one read may return.
func page(rs []chunk.Record, most int) []chunk.Record {
	n, size := 0, 0
	for ; n < min(len(rs), most) && size < spool.MaxReadBytes; n++ {
		size += len(rs[n].Data)
	}
	return rs[:n]
}

// parseNotice parses what waiters are told: fields, each after its length and a colon.
func parseNotice(session, text string) (watch.State, bool) {
	var fields []string
	for text != "" {
		length, rest, ok := strings.Cut(text, ":")
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n < 0 || n > len(rest) {
			return watch.State{}, false
		}
		fields, text = append(fields, rest[:n]), rest[n:]
	}
	if len(fields)%3 != 1 {
		return watch.State{}, false
	}
	r, ok := parseRow(session, fields[0])
	if !ok {
		return watch.State{}, false
	}
	rest := fields[1:]
	n := uint64(len(rest) / 3)
	if n > r.info.Head.Seq {
		return watch.State{}, false
	}
	var records []chunk.Record
	for i := range n {
		rec := parseRecord(classOf(rest[3*i]), rest[3*i+1], []byte(rest[3*i+2]))
		rec.Seq = r.info.Head.Seq - n + 1 + i
		records = append(records, rec)
	}
	return r.state(records), true
}
