package fold

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strconv"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/blobref"
	"github.com/spool-run/spool/internal/jsonenc"
)

// Digest returns what a command asks for, in short. It is the same for a request and for
// the record that it became, with its large values beside the log. It leaves out what may
// differ in a repeat: times, reasons, what to do if the session is busy.
func Digest(c chunk.Chunk) string {
	switch c := c.(type) {
	case *chunk.UserMessage:
		return "message/" + contentOf(&c.Message)
	case *chunk.ResumeRequested:
		if c.Mode == chunk.ModeFromCheckpoint {
			return c.Mode + "/" + c.CheckpointID
		}
		return c.Mode
	case *chunk.HistoryRewound:
		return c.Trigger + "/" + c.AfterMessageID
	}
	return string(c.ChunkType())
}

// DigestWith is the digest of a command that comes with a message.
func DigestWith(digest string, m *chunk.UserMessage) string { return digest + "+" + Digest(m) }

// ask notes what the first command of an id asks for.
func (f *Fold) ask(c chunk.Chunk) {
	id := chunk.CommandID(c)
	if _, known := f.Asked[id]; !known {
		f.Asked[id] = Digest(c)
	}
}

// Assistant reports whether a message of the session's agent has this id, or had it.
func (f *Fold) Assistant(id string) bool {
	for _, t := range f.Turns {
		if t.MessageID == id {
			return true
		}
	}
	m := f.Message(id)
	return m != nil && m.Role == chunk.RoleAssistant
}

// contentOf is a hash of what a message says.
func contentOf(m *chunk.Message) string {
	h := sha256.New()
	field := func(s string) { _, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s) }
	for i := range m.Parts {
		p := &m.Parts[i]
		field(string(p.Type))
		text, url := hashText(p.Text), hashText(p.URL)
		if hash, _, ok := blobref.Parse(p.Large); ok && p.Type == chunk.PartFile {
			url = hash
		} else if ok {
			text = hash
		}
		for _, s := range []string{text, url, p.Title, p.MediaType, p.Filename, hashValue(p.Data)} {
			field(s)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// hashText is the hash under which a text is stored if it is large.
func hashText(s string) string {
	if s == "" {
		return ""
	}
	return blobref.Hash(jsonenc.Must(s))
}

// hashValue is the hash under which a JSON value is stored if it is large; otherwise that
// of the value, however it is written and escaped.
func hashValue(v json.RawMessage) string {
	if len(v) > chunk.MaxInlineBytes {
		return blobref.Hash(v)
	}
	for plain := blobref.Unescape(v); !bytes.Equal(plain, v); plain = blobref.Unescape(v) {
		v = plain
	}
	if hash, _, ok := blobref.Parse(v); ok {
		return hash
	}
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return hashText(string(v))
	}
	return blobref.Hash(jsonenc.Must(value))
}
