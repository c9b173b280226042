package commandid

import "testing"

func TestReserved(t *testing.T) {
	for _, kind := range kinds {
		id := New(kind, "about", "it")
		for _, id := range []string{id, id + "-1", "rewind-" + id + "-12"} {
			if !Reserved(id) {
				t.Errorf("%s can be chosen by clients", id)
			}
		}
	}
	for _, id := range []string{"", "m", "m-", "u1", "m-1", "stop-it", "stop-0123456789abcdeg", "stop-0123456789abcde", "STOP-0123456789abcdef",
		"0123456789abcdef", "other-0123456789abcdef", "01993a5c-7d1e-7b7e-8f53-3a4c0b1d2e3f", "msg-0123456789abcdef", "-0123456789abcdef"} {
		if Reserved(id) {
			t.Errorf("%s cannot be chosen by clients", id)
		}
	}
	if Hash("a", "bc") == Hash("ab", "c") || Hash("a") == Hash("a", "") {
		t.Error("different texts have one hash")
	}
}
