// Package blobref is the form in which a record refers to a value that is stored
// beside the log, and the escaping that keeps a user's object from looking like
// such a reference.
package blobref

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// Ref stands in a record for a value that is stored beside the log.
type Ref struct {
	Blob      string `json:"$blob"` // "sha256:" and the hash in hex
	Size      int    `json:"size"`
	MediaType string `json:"mediaType"`
}

// Parse returns the hash and size of a value that is a reference to a
// blob: {"$blob":"sha256:…","size":n,"mediaType":"…"} and nothing else.
func Parse(v json.RawMessage) (hash string, size int, ok bool) {
	if len(v) > 512 || !bytes.Contains(v, []byte(`"$blob"`)) {
		return "", 0, false
	}
	var ref Ref
	d := json.NewDecoder(bytes.NewReader(v))
	d.DisallowUnknownFields()
	if d.Decode(&ref) != nil {
		return "", 0, false
	}
	digits, found := strings.CutPrefix(ref.Blob, "sha256:")
	if raw, err := hex.DecodeString(digits); !found || err != nil || len(raw) != sha256.Size {
		return "", 0, false
	}
	return ref.Blob, ref.Size, true
}

// Escape returns a foreign value as it is stored if it is small: its key "$blob"
// becomes "$$blob", "$$blob" becomes "$$$blob", and so on.
func Escape(v json.RawMessage) json.RawMessage {
	return renameKey(v, func(key string) string { return "$" + key })
}

// EscapeUnlessRef is [Escape] for a value that may have been stored before. It leaves a
// value as it is that is a reference, or is escaped.
func EscapeUnlessRef(v json.RawMessage) json.RawMessage {
	return renameKey(v, func(key string) string {
		if key != "$blob" {
			return key
		}
		if _, _, ref := Parse(v); ref {
			return key
		}
		return "$" + key
	})
}

// Unescape undoes [Escape].
func Unescape(v json.RawMessage) json.RawMessage {
	return renameKey(v, func(key string) string {
		if strings.HasPrefix(key, "$$") {
			return key[1:]
		}
		return key
	})
}

// renameKey renames the top-level keys of an object that are "blob" after
// one or more dollars. Other values come back as they are.
func renameKey(v json.RawMessage, rename func(string) string) json.RawMessage {
	if !bytes.Contains(v, []byte(`$blob"`)) {
		return v
	}
	d := json.NewDecoder(bytes.NewReader(v))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return v
	}
	var out []byte
	copied := 0
	for d.More() {
		token, err := d.Token()
		key, ok := token.(string)
		if err != nil || !ok {
			return v
		}
		end := int(d.InputOffset())
		if bare := strings.TrimLeft(key, "$"); bare == "blob" && bare != key {
			if to := rename(key); to != key {
				start := bytes.LastIndex(v[:end-1], []byte(`"`))
				out = append(append(append(append(out, v[copied:start]...), '"'), to...), '"')
				copied = end
			}
		}
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return v
		}
	}
	if copied == 0 {
		return v
	}
	return append(out, v[copied:]...)
}

// Hash returns the name of a blob with this content.
func Hash(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// In returns the hashes that a record refers to. Values that only look like references
// may be among them.
func In(data []byte) (hashes []string) {
	const before, digits = `"$blob":"`, len("sha256:") + 64
	for {
		i := bytes.Index(data, []byte(before))
		if i < 0 {
			return hashes
		}
		data = data[i+len(before):]
		if len(data) > digits && data[digits] == '"' && bytes.HasPrefix(data, []byte("sha256:")) {
			hashes = append(hashes, string(data[:digits]))
		}
	}
}
