// Package providertest checks the fast ways of the provider packages.
package providertest

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
	"github.com/spool-run/spool/model/modeltest"
)

// NewReader begins to take a stream apart.
type NewReader func(yield func(model.Part, error) bool) *provider.Reader

// SameBothWays checks that the fast way and the ordinary way make the same of an
// event, and counts the events that took the fast way.
func SameBothWays(t testing.TB, data []byte, newReader NewReader) (n int) {
	t.Helper()
	fast, n, fastErr := says(data, newReader, true)
	slow, _, slowErr := says(data, newReader, false)
	if !reflect.DeepEqual(fast, slow) || fmt.Sprint(fastErr) != fmt.Sprint(slowErr) {
		t.Errorf("the fast way: %+v, %v\nthe other: %+v, %v", fast, fastErr, slow, slowErr)
	}
	return n
}

// says reads a stream, with or without the fast way.
func says(data []byte, newReader NewReader, fast bool) (parts []model.Part, n int, err error) {
	parts, err = modeltest.Collect(func(yield func(model.Part, error) bool) {
		r := newReader(yield)
		taken := r.Fast
		r.Fast = func(name, data []byte) bool {
			if !fast || !taken(name, data) {
				return false
			}
			n++
			return true
		}
		r.Read(bytes.NewReader(data))
	})
	return parts, n, err
}
