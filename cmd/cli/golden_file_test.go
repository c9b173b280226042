package cli

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files again")

// A golden file holds what was answered, byte by byte, as text that a person can
// read and compare. Answers repeat each other: a stream after a cursor is the end
// of the whole stream. So each piece of text is written once and has a number, by
// its place in the file, and later answers refer to it.
//
//	== NAME           an answer begins
//	|text             a piece that ends with a line end
//	+text             a piece that ends with an empty line: the end of an event
//	\text             a piece that no line end follows
//	@3-17 5           the pieces 3 to 17 and 5 again

// pieces cuts an answer where others may share its parts: behind each line end,
// and before each object of a JSON list.
func pieces(s string) []string {
	var out []string
	for s != "" {
		n := len(s)
		if i := strings.IndexByte(s, '\n'); i >= 0 {
			n = i + 1
			if strings.HasPrefix(s[n:], "\n") {
				n++
			}
		}
		line := s[:n]
		s = s[n:]
		for {
			i := strings.Index(line, ",{")
			if i < 0 {
				break
			}
			out = append(out, line[:i+1])
			line = line[i+1:]
		}
		out = append(out, line)
	}
	return out
}

// goldenText says whether a golden file can hold an answer as text.
func goldenText(s string) bool { return utf8.ValidString(s) && !strings.ContainsAny(s, "\r\x00") }

// answers are what was answered, in the order of the questions.
type answers struct {
	names []string
	texts map[string]string
	large map[string][]byte // what digests stand for
}

func (a *answers) add(name, text string) {
	if a.texts == nil {
		a.texts, a.large = map[string]string{}, map[string][]byte{}
	}
	for n := 2; ; n++ {
		if _, taken := a.texts[name]; !taken {
			break
		}
		name = strings.TrimSuffix(name, fmt.Sprintf(" (%d)", n-1)) + fmt.Sprintf(" (%d)", n)
	}
	a.names = append(a.names, name)
	a.texts[name] = text
}

func (a *answers) encode() []byte {
	var b bytes.Buffer
	numbers := map[string]int{}
	from, to := 0, -1 // pieces to refer to
	sign := "@"       // before the next reference
	refer := func(more bool) {
		switch {
		case to > from:
			fmt.Fprintf(&b, "%s%d-%d", sign, from, to)
		case to == from:
			fmt.Fprintf(&b, "%s%d", sign, from)
		}
		if to >= from {
			sign = " "
		}
		if from, to = 0, -1; !more && sign == " " {
			b.WriteByte('\n')
			sign = "@"
		}
	}
	for _, name := range a.names {
		fmt.Fprintf(&b, "== %s\n", name)
		for _, p := range pieces(a.texts[name]) {
			n, known := numbers[p]
			if known && n == to+1 {
				to = n
				continue
			}
			refer(known)
			if known {
				from, to = n, n
				continue
			}
			numbers[p] = len(numbers) + 1
			switch text, event := strings.CutSuffix(p, "\n\n"); {
			case event:
				fmt.Fprintf(&b, "+%s\n", text)
			case strings.HasSuffix(p, "\n"):
				fmt.Fprintf(&b, "|%s", p)
			default:
				fmt.Fprintf(&b, "\\%s\n", p)
			}
		}
		refer(false)
	}
	return b.Bytes()
}

func decodeAnswers(data []byte) (*answers, error) {
	a := &answers{}
	var known []string
	var name string
	var text strings.Builder
	end := func() {
		if name != "" {
			a.add(name, text.String())
		}
		text.Reset()
	}
	for n, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		kind, rest := "", ""
		if line != "" {
			kind, rest = line[:1], line[1:]
		}
		switch kind {
		case "=":
			end()
			name = strings.TrimPrefix(rest, "= ")
		case "|", "+", "\\":
			p := rest + map[string]string{"|": "\n", "+": "\n\n"}[kind]
			known = append(known, p)
			text.WriteString(p)
		case "@":
			for ref := range strings.FieldsSeq(rest) {
				first, last, ranged := strings.Cut(ref, "-")
				if !ranged {
					last = first
				}
				from, err1 := strconv.Atoi(first)
				to, err2 := strconv.Atoi(last)
				if err1 != nil || err2 != nil || from < 1 || from > to || to > len(known) {
					return nil, fmt.Errorf("line %d refers to nothing: %s", n+1, line)
				}
				for _, p := range known[from-1 : to] {
					text.WriteString(p)
				}
			}
		default:
			return nil, fmt.Errorf("line %d is of no kind: %q", n+1, line)
		}
	}
	end()
	return a, nil
}

// golden compares answers with a golden file, or with -update writes it.
func golden(t *testing.T, file string, got *answers) {
	t.Helper()
	if *update {
		data := got.encode()
		if back, err := decodeAnswers(data); err != nil || len(back.names) != len(got.names) {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	compareAnswers(t, file, goldenAnswers(t, file), got)
}

// compareAnswers says where answers are not what they were.
func compareAnswers(t *testing.T, file string, want, got *answers) {
	t.Helper()
	wrong := 0
	differs := func(name, how string) {
		if wrong++; wrong <= 3 {
			t.Errorf("%s: %s%s", file, name, how)
		}
	}
	for _, name := range want.names {
		now, answered := got.texts[name]
		switch then := want.texts[name]; {
		case !answered:
			differs(name, " is not asked any more")
		case now != then:
			differs(name, "\n"+firstDifference(then, now)+keep(t, got.large[name], wrong))
		}
	}
	for _, name := range got.names {
		if _, known := want.texts[name]; !known {
			differs(name, " is new:\n"+short(got.texts[name]))
		}
	}
	if wrong > 3 {
		t.Errorf("%s: %d of %d answers are not what they were", file, wrong, len(want.names))
	}
}

// staleFiles says which golden files belong to nothing any more, or with -update
// removes them.
func staleFiles(t *testing.T, dir string, used map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !used[file] && *update {
			err = errors.Join(err, os.Remove(file))
		} else if !used[file] {
			t.Errorf("%s belongs to nothing any more", file)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// firstDifference shows where two texts part, with what stands before.
func firstDifference(then, now string) string {
	was, is := strings.SplitAfter(then, "\n"), strings.SplitAfter(now, "\n")
	n := 0
	for n < len(was) && n < len(is) && was[n] == is[n] {
		n++
	}
	around := func(lines []string) string {
		return short(strings.Join(lines[min(n, len(lines)):min(n+3, len(lines))], ""))
	}
	before := short(strings.Join(was[max(0, n-3):n], ""))
	w, i := around(was), around(is)
	if n < len(was) && n < len(is) && len(w)+len(i) > 600 { // long lines: where in them
		k := 0
		for k < len(was[n]) && k < len(is[n]) && was[n][k] == is[n][k] {
			k++
		}
		cut := func(line string) string { return "…" + line[max(0, k-80):min(len(line), k+200)] + "…" }
		w, i = fmt.Sprintf("at byte %d of the line: %s", k, cut(was[n])), cut(is[n])
	}
	return fmt.Sprintf("line %d (%d bytes then, %d now)\nbefore: %s\nthen:   %s\nnow:    %s", n+1, len(then), len(now), before, w, i)
}

func short(s string) string {
	if len(s) > 1500 {
		return s[:1500] + "…"
	}
	return s
}

// goldenAnswers reads a golden file.
func goldenAnswers(t *testing.T, file string) *answers {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a, err := decodeAnswers(data)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return a
}

// keep writes what only a digest is known of to a file, so that it can be compared
// with what an older commit has there.
func keep(t *testing.T, data []byte, before int) string {
	if data == nil || before >= 3 {
		return ""
	}
	f, err := os.CreateTemp("", "golden-*.txt")
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return "\nwhat it is now: " + f.Name() + "; to see what it was, break the golden file's digest on an older commit, run this test there, and compare"
}

// digest stands in a golden file for what is too large for it.
func digest(data []byte) string {
	return fmt.Sprintf("%d bytes, sha256 %x", len(data), sha256.Sum256(data))
}

// A golden file says what it was made from.
func TestGoldenFilesAreExact(t *testing.T) {
	a := &answers{}
	for name, text := range map[string]string{
		"empty": "", "no end": "a", "lines": "a\nb\n", "event": ": spool\n\nid: 1\ndata: {\"a\":[{\"b\":1},{\"b\":2}]}\n\n",
		"again": "id: 1\ndata: {\"a\":[{\"b\":1},{\"b\":2}]}\n\na\nb\nb\n", "ends": "\n\n\n", "signs": "== x\n@1\n|\n+\n\\",
	} {
		a.add(name, text)
	}
	a.add("lines", "the same question again")
	back, err := decodeAnswers(a.encode())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range a.names {
		if got, ok := back.texts[name]; !ok || got != a.texts[name] {
			t.Errorf("%s: %q, not %q", name, got, a.texts[name])
		}
	}
	if len(back.names) != len(a.names) {
		t.Errorf("%d answers, not %d", len(back.names), len(a.names))
	}
}
