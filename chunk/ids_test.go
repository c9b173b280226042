package chunk

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckID(t *testing.T) {
	t.Parallel()
	good := []string{"a", "A-1_2.3", "日本", "...", "a b", strings.Repeat("x", MaxIDBytes), "a\u2028b", "s.1"}
	for _, id := range good {
		if err := CheckID(id); err != nil {
			t.Errorf("CheckID(%q) = %v", id, err)
		}
	}
	bad := []string{"", ".", "..", "a/b", `a\b`, "a\x00", "a\n", "a\x7f", "é\u0085", "é/", "é\xff", "\xff", strings.Repeat("x", MaxIDBytes+1)}
	for _, id := range bad {
		if err := CheckID(id); !errors.Is(err, ErrInvalidID) {
			t.Errorf("CheckID(%q) = %v, want ErrInvalidID", id, err)
		}
	}
}

func TestCheckSessionID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "a.b", "a.1b", ".1", "1", "a.", "v1.2-x"} {
		if err := CheckSessionID(id); err != nil {
			t.Errorf("CheckSessionID(%q) = %v", id, err)
		}
	}
	for _, id := range []string{"a.1", "a.1.22", "a..0"} {
		err := CheckSessionID(id)
		if !errors.Is(err, ErrInvalidID) || CodeOf(err) != "invalid_session_id" {
			t.Errorf("CheckSessionID(%q) = %v, want invalid_session_id", id, err)
		}
	}
	if err := CheckSessionID("a/b"); !errors.Is(err, ErrInvalidID) {
		t.Errorf("CheckSessionID(a/b) = %v, want ErrInvalidID", err)
	}
}

func TestRootID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"s": "s", "s.1": "s", "s.1.12": "s", "s.x": "s.x", ".1": ".1", "": "", "12": "12", "s.x.3": "s.x"} {
		if got := RootID(id); got != want {
			t.Errorf("RootID(%q) = %q, want %q", id, got, want)
		}
	}
}
