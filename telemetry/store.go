package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// FullStore is a store with every role that a server uses.
type FullStore interface {
	spool.Store
	spool.Leaser
	spool.Lister
	spool.Trimmer
	spool.Expirer
	spool.Measurer
	spool.FoldStore
	spool.BlobStore
	spool.Importer
}

// Store returns a store whose calls are measured, with the same roles. Calls that wait for
// something to happen (Wait, AwaitDue) are not measured.
func (t *Telemetry) Store(s FullStore) FullStore {
	m := &measured{FullStore: s, t: t}
	prober, probes := s.(spool.Prober)
	_, volatile := s.(spool.Volatile)
	switch {
	case probes && volatile:
		return struct {
			measuredProber
			inMemory
		}{measuredProber{m, prober}, inMemory{}}
	case probes:
		return measuredProber{m, prober}
	case volatile:
		return struct {
			*measured
			inMemory
		}{m, inMemory{}}
	}
	return m
}

// RaiseAbove implements [spool.Raiser].
func (m *measured) RaiseAbove(ctx context.Context, session string, known spool.Head) (h spool.Head, err error) {
	raiser, ok := m.FullStore.(spool.Raiser)
	if !ok {
		return h, spool.ErrUnsupported.With(session, nil)
	}
	m.call(ctx, "raise_above", func() error { h, err = raiser.RaiseAbove(ctx, session, known); return err })
	return h, err
}

// inMemory is the role [spool.Volatile].
type inMemory struct{}

func (inMemory) Volatile() {}

// measured is a store whose calls are measured.
type measured struct {
	FullStore
	t *Telemetry
}

// call measures a call.
func (m *measured) call(ctx context.Context, name string, call func() error) {
	begun := time.Now()
	err := call()
	took := time.Since(begun)
	attrs := []attribute.KeyValue{attribute.String("spool.store.call", name)}
	if err != nil {
		attrs = append(attrs, attribute.String("error.type", codeOf(err)))
	}
	m.t.storeSeconds.Record(context.WithoutCancel(ctx), took.Seconds(), metric.WithAttributes(attrs...))
}

// Append implements [spool.Store]. It also notes from which request a command comes.
func (m *measured) Append(ctx context.Context, a spool.Append) (res spool.Appended, err error) {
	if a.Epoch == 0 {
		m.t.requests.put(a.Session, trace.SpanFromContext(ctx))
	}
	m.call(ctx, "append", func() error { res, err = m.FullStore.Append(ctx, a); return err })
	return res, err
}

// Read implements [spool.Store].
func (m *measured) Read(ctx context.Context, session string, after uint64, max int) (recs []chunk.Record, h spool.Head, err error) {
	m.call(ctx, "read", func() error { recs, h, err = m.FullStore.Read(ctx, session, after, max); return err })
	return recs, h, err
}

// ReadKept implements [spool.Store].
func (m *measured) ReadKept(ctx context.Context, session string, q spool.KeptQuery) (recs []chunk.Record, h spool.Head, err error) {
	m.call(ctx, "read_kept", func() error { recs, h, err = m.FullStore.ReadKept(ctx, session, q); return err })
	return recs, h, err
}

// Head implements [spool.Store].
func (m *measured) Head(ctx context.Context, session string) (h spool.Head, err error) {
	m.call(ctx, "head", func() error { h, err = m.FullStore.Head(ctx, session); return err })
	return h, err
}

// Claim implements [spool.Leaser].
func (m *measured) Claim(ctx context.Context, c spool.Claim) (l spool.Lease, err error) {
	m.call(ctx, "claim", func() error { l, err = m.FullStore.Claim(ctx, c); return err })
	return l, err
}

// Renew implements [spool.Leaser].
func (m *measured) Renew(ctx context.Context, l spool.Lease) (err error) {
	m.call(ctx, "renew", func() error { err = m.FullStore.Renew(ctx, l); return err })
	return err
}

// Release implements [spool.Leaser].
func (m *measured) Release(ctx context.Context, l spool.Lease) (err error) {
	m.call(ctx, "release", func() error { err = m.FullStore.Release(ctx, l); return err })
	return err
}

// Sessions implements [spool.Lister].
func (m *measured) Sessions(ctx context.Context, q spool.SessionQuery) (p spool.SessionPage, err error) {
	m.call(ctx, "sessions", func() error { p, err = m.FullStore.Sessions(ctx, q); return err })
	return p, err
}

// Session implements [spool.Lister].
func (m *measured) Session(ctx context.Context, session string) (i spool.SessionInfo, err error) {
	m.call(ctx, "session", func() error { i, err = m.FullStore.Session(ctx, session); return err })
	return i, err
}

// Trim implements [spool.Trimmer].
func (m *measured) Trim(ctx context.Context, session string, traceFloor, floor uint64) (err error) {
	m.call(ctx, "trim", func() error { err = m.FullStore.Trim(ctx, session, traceFloor, floor); return err })
	return err
}

// Delete implements [spool.Trimmer].
func (m *measured) Delete(ctx context.Context, session string) (err error) {
	m.call(ctx, "delete", func() error { err = m.FullStore.Delete(ctx, session); return err })
	return err
}

// Expire implements [spool.Expirer].
func (m *measured) Expire(ctx context.Context, session string, idle time.Duration) (err error) {
	m.call(ctx, "expire", func() error { err = m.FullStore.Expire(ctx, session, idle); return err })
	return err
}

// Usage implements [spool.Measurer].
func (m *measured) Usage(ctx context.Context, principal string) (u spool.Usage, err error) {
	m.call(ctx, "usage", func() error { u, err = m.FullStore.Usage(ctx, principal); return err })
	return u, err
}

// SaveFold implements [spool.FoldStore].
func (m *measured) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) (err error) {
	m.call(ctx, "save_fold", func() error { err = m.FullStore.SaveFold(ctx, session, name, f); return err })
	return err
}

// LoadFold implements [spool.FoldStore].
func (m *measured) LoadFold(ctx context.Context, session, name string) (f spool.SavedFold, err error) {
	m.call(ctx, "load_fold", func() error { f, err = m.FullStore.LoadFold(ctx, session, name); return err })
	return f, err
}

// PutBlob implements [spool.BlobStore].
func (m *measured) PutBlob(ctx context.Context, session, hash string, data []byte) (err error) {
	m.call(ctx, "put_blob", func() error { err = m.FullStore.PutBlob(ctx, session, hash, data); return err })
	return err
}

// GetBlob implements [spool.BlobStore].
func (m *measured) GetBlob(ctx context.Context, session, hash string) (data []byte, err error) {
	m.call(ctx, "get_blob", func() error { data, err = m.FullStore.GetBlob(ctx, session, hash); return err })
	return data, err
}

// Import implements [spool.Importer].
func (m *measured) Import(ctx context.Context, i spool.Import) (h spool.Head, err error) {
	m.call(ctx, "import", func() error { h, err = m.FullStore.Import(ctx, i); return err })
	return h, err
}

// measuredProber is a store that can be probed.
type measuredProber struct {
	*measured
	prober spool.Prober
}

// Probe implements [spool.Prober].
func (m measuredProber) Probe(ctx context.Context) (err error) {
	m.call(ctx, "probe", func() error { err = m.prober.Probe(ctx); return err })
	return err
}
