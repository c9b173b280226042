package aisdk

import (
	"bytes"
	"encoding/json"
)

// withoutPrototypes returns a JSON value without the members with which it could change
// the prototypes of a JavaScript program: __proto__, and prototype in a member
// constructor. The clients' parser ends the whole stream at such a value; that of ai
// 6.0.0 also at a constructor that is null.
func withoutPrototypes(v json.RawMessage) json.RawMessage {
	if !mayHavePrototypes(v) {
		return v
	}
	p := pruner{src: v, dec: json.NewDecoder(bytes.NewReader(v))}
	p.dec.UseNumber()
	if p.value(false) != nil || p.dst == nil {
		return v
	}
	return append(p.dst, v[p.copied:]...)
}

// hasPrototypes reports whether a JSON value has members that clients do not take.
func hasPrototypes(v json.RawMessage) bool { return len(withoutPrototypes(v)) != len(v) }

// mayHavePrototypes is false for nearly all values, at the price of a search. Names can
// also be written with escapes of their letters.
func mayHavePrototypes(v []byte) bool {
	if bytes.Contains(v, []byte("__proto__")) || bytes.Contains(v, []byte("constructor")) {
		return true
	}
	for rest := v; ; {
		i := bytes.Index(rest, []byte(`\u00`))
		if i < 0 || i+4 >= len(rest) {
			return false
		}
		if c := rest[i+4]; c >= '5' && c <= '7' {
			return true
		}
		rest = rest[i+4:]
	}
}

// pruner copies a JSON value but for the members that clients do not take.
type pruner struct {
	src    []byte
	dec    *json.Decoder
	dst    []byte
	copied int // src is copied, or dropped, up to here
}

func (p *pruner) at() int { return int(p.dec.InputOffset()) }

// drop leaves out what lies between two offsets.
func (p *pruner) drop(from, to int) {
	p.dst = append(p.dst, p.src[p.copied:from]...)
	p.copied = to
}

// value reads one value, which may be that of a member constructor.
func (p *pruner) value(ofConstructor bool) error {
	t, err := p.dec.Token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('['):
		for p.dec.More() && err == nil {
			err = p.value(false)
		}
	case json.Delim('{'):
		err = p.members(ofConstructor)
	default:
		return nil
	}
	if err == nil {
		_, err = p.dec.Token() // the closing bracket
	}
	return err
}

// members reads the members of an object.
func (p *pruner) members(ofConstructor bool) error {
	kept := false
	for end := p.at(); p.dec.More(); end = p.at() {
		name, err := p.dec.Token()
		if err != nil {
			return err
		}
		if name == "__proto__" || name == "prototype" && ofConstructor || name == "constructor" && p.nullFollows() {
			var dropped json.RawMessage
			if err := p.dec.Decode(&dropped); err != nil {
				return err
			}
			p.drop(end, p.at())
			continue
		}
		if !kept && p.src[end-1] != '{' { // all before it were dropped, and it loses its comma
			p.drop(end, end+bytes.IndexByte(p.src[end:], ',')+1)
		}
		kept = true
		if err := p.value(name == "constructor"); err != nil {
			return err
		}
	}
	return nil
}

// nullFollows reports whether the value of the member that has just been named is null.
func (p *pruner) nullFollows() bool {
	return bytes.HasPrefix(bytes.TrimLeft(p.src[p.at():], ": \t\r\n"), []byte("null"))
}
