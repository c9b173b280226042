package natsstore

import (
	"reflect"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// FuzzMessage reads messages that another program may have stored: none is more than an
// error, and what was read is written the same.
func FuzzMessage(f *testing.F) {
	st := &state{Session: "s", Exists: true, Head: spool.Head{Seq: 7, Incarnation: 1}, writers: []written{{writer: writerKey("w"), ordinal: 3, first: 6, last: 7}}}
	w := &write{kind: kindKept, records: []chunk.Record{{Seq: 6, Type: chunk.TypeTextDelta, Class: chunk.Trace, Time: -1, Agent: "a", Data: []byte("x")}, {Seq: 7, Class: chunk.Kept}}}
	m, err := st.encode("subject", "id", w)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.Header.Get(headerState), m.Data)
	f.Add(`{"head":[]}`, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, header string, data []byte) {
		writers, records, rest, err := decodePayload(data)
		st, wrong := decodeState(nats.Header{headerState: {header}})
		if err != nil || wrong != nil {
			return
		}
		st.writers = writers
		m, err := st.encode("subject", "id", &write{records: records, data: rest})
		if err != nil {
			t.Fatal(err)
		}
		writers2, records2, rest2, err := decodePayload(m.Data)
		if err != nil || !reflect.DeepEqual(writers, writers2) || !reflect.DeepEqual(records, records2) || string(rest) != string(rest2) {
			t.Errorf("%q is %q when it is written again: %v", data, m.Data, err)
		}
		if _, err := decodeState(m.Header); err != nil {
			t.Error(err)
		}
	})
}

// A server is asked for nothing with options that cannot be.
func TestWrongPrefix(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"a.b", "*", ">", "a b", "ä", "0123456789012345678901234567890123"} {
		if _, err := Open("nats://127.0.0.1:1", &Options{Prefix: prefix}); chunk.CodeOf(err) != chunk.ErrInvalid.Code {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}
