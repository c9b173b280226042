package provider

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// However a provider cuts a string, by UTF-16 code units or by bytes, its pieces
// joined are the string.
func TestJoiner(t *testing.T) {
	const said = "a🧵é\u2028🎉🎉ž\"\\\n日本語🇨🇿"
	var units []string // as JavaScript escapes them one by one
	for _, r := range said {
		data, _ := json.Marshal(string(r))
		if r > 0xFFFF {
			high, low := 0xD800+(r-0x10000)>>10, 0xDC00+(r-0x10000)&0x3FF
			units = append(units, escape(high), escape(low))
			continue
		}
		units = append(units, string(data[1:len(data)-1]))
	}
	join := func(pieces []string) string {
		var j Joiner
		var b strings.Builder
		for _, p := range pieces {
			s, ok := Raw([]byte(`"` + p + `"`))
			if !ok {
				t.Fatalf("%q is no string", p)
			}
			if s = j.Add(s); !utf8.ValidString(s) {
				t.Errorf("%q is no text", s)
			}
			b.WriteString(s)
		}
		return b.String() + j.End()
	}
	if got := join(units); got != said {
		t.Errorf("unit by unit: %q", got)
	}
	for i := range units {
		if got := join([]string{strings.Join(units[:i], ""), strings.Join(units[i:], "")}); got != said {
			t.Errorf("cut behind unit %d: %q", i, got)
		}
	}
	var bytes []string
	for i := range len(said) {
		switch c := said[i]; c {
		case '"', '\\':
			bytes = append(bytes, `\`+string(rune(c)))
		case '\n':
			bytes = append(bytes, `\n`)
		default:
			bytes = append(bytes, said[i:i+1])
		}
	}
	if got := join(bytes); got != said {
		t.Errorf("byte by byte: %q", got)
	}
}

func escape(r rune) string {
	const hex = "0123456789ABCDEF"
	return `\u` + string([]byte{hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15]})
}

// What has no other half, or is no character at all, comes out as encoding/json
// has it.
func FuzzJoiner(f *testing.F) {
	for _, s := range []string{"", "é", `\ud83e\uddf5`, `\ud83e`, `\uddf5\ud83e`, `\ud83e\ud83e\uddf5`, "\xED\xA0", "\xF0\x9F", `\u0041\/\b\f\n\r\t\"\\`, "\xff\xfe"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := `"` + s + `"`
		var want string
		if json.Unmarshal([]byte(raw), &want) != nil {
			return
		}
		got, ok := Raw([]byte(raw))
		var j Joiner
		got = j.Add(got) + j.End()
		if strings.Contains(s, "\xED") {
			// Halves in bytes are joined too.
			want, got = strings.ReplaceAll(want, "\uFFFD", ""), strings.ReplaceAll(got, "\uFFFD", "")
			if !ok || !utf8.ValidString(got) || len(got) < len(want) {
				t.Errorf("%q: %q, want %q", raw, got, want)
			}
			return
		}
		if !ok || got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	})
}

func TestStrings(t *testing.T) {
	var s Strings
	p := []byte("word")
	var list []string
	for range 2000 {
		list = append(list, s.Of(p))
	}
	copy(p, "xxxx")
	for i, w := range list {
		if w != "word" {
			t.Fatalf("string %d is %q", i, w)
		}
	}
	if long := strings.Repeat("é", 500); s.Of([]byte(long)) != long {
		t.Error("a long string is another")
	}
}

// The scanner takes what encoding/json takes, as far as it goes.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,{"b":null}],"c":"\u00e9\n"}`, `[]`, `{}`, `[1,]`, `{"a":1,}`, `{"a" 1}`, `tru`, `01`, `1.`, `"\x"`, "\"\x01\"", ` 1 2`, `-`, `1e`, `{"\u0061":1}`, "1\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := Scan(data)
		s.Skip()
		if got, want := s.Done(), json.Valid(data); got != want && strings.Count(string(data), "[")+strings.Count(string(data), "{") < 60 {
			t.Errorf("%q: %v, encoding/json says %v", data, got, want)
		}
	})
}
