package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/memstore"
)

// A suite that cannot fail proves nothing: each of these stores breaks one
// promise, and the suite must say so.

// fault is a memstore with one thing wrong.
type fault struct {
	*memstore.Store
	append   func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error)
	read     func(rs []chunk.Record, err error) ([]chunk.Record, error)
	readKept func(q spool.KeptQuery, s *memstore.Store, session string) ([]chunk.Record, spool.Head, error)
	wait     func(ctx context.Context, s *memstore.Store, session string, seen spool.Head) (spool.Head, []chunk.Record, error)
	claim    func(c spool.Claim) spool.Claim
	importer func(i spool.Import) spool.Import
	session  func(i spool.SessionInfo) spool.SessionInfo
	query    func(q spool.SessionQuery) spool.SessionQuery
	expire   func(ctx context.Context, s *memstore.Store, session string, idle time.Duration) error
}

type appendFunc = func(context.Context, spool.Append) (spool.Appended, error)

func (f *fault) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if f.append != nil {
		return f.append(ctx, a, f.Store.Append)
	}
	return f.Store.Append(ctx, a)
}

func (f *fault) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	rs, h, err := f.Store.Read(ctx, session, after, max)
	if f.read != nil {
		rs, err = f.read(rs, err)
	}
	return rs, h, err
}

func (f *fault) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	if f.readKept != nil {
		return f.readKept(q, f.Store, session)
	}
	return f.Store.ReadKept(ctx, session, q)
}

func (f *fault) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	if f.wait != nil {
		return f.wait(ctx, f.Store, session, seen)
	}
	return f.Store.Wait(ctx, session, seen)
}

func (f *fault) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	if f.claim != nil {
		c = f.claim(c)
	}
	return f.Store.Claim(ctx, c)
}

func (f *fault) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	i, err := f.Store.Session(ctx, session)
	if f.session != nil {
		i = f.session(i)
	}
	return i, err
}

func (f *fault) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	if f.query != nil {
		q = f.query(q)
	}
	return f.Store.Sessions(ctx, q)
}

func (f *fault) Expire(ctx context.Context, session string, idle time.Duration) error {
	if f.expire != nil {
		return f.expire(ctx, f.Store, session, idle)
	}
	return f.Store.Expire(ctx, session, idle)
}

func (f *fault) Import(ctx context.Context, i spool.Import) (spool.Head, error) {
	if f.importer != nil {
		i = f.importer(i)
	}
	return f.Store.Import(ctx, i)
}

// faults says what is wrong and in which group of checks it must show at the
// latest.
var faults = map[string]struct {
	group string
	make  func(*fault)
}{
	"none": {"", func(*fault) {}},
	"drops a record": {"Order", func(f *fault) {
		f.read = func(rs []chunk.Record, err error) ([]chunk.Record, error) {
			if len(rs) > 5 {
				rs = append(rs[:3:3], rs[4:]...)
			}
			return rs, err
		}
	}},
	"batch is not atomic": {"Order", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			if len(a.Records) < 2 {
				return next(ctx, a)
			}
			head, tail := a, a
			head.Records, tail.Records = a.Records[:1], a.Records[1:]
			head.Ordinal, head.Row, head.Settle = 0, spool.Row{}, nil
			first, err := next(ctx, head)
			if err != nil {
				return first, err
			}
			res, err := next(ctx, tail)
			res.First = first.First
			return res, err
		}
	}},
	"ignores the epoch": {"Fence", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			if h, err := f.Head(ctx, a.Session); err == nil && a.Epoch > 0 {
				a.Epoch = h.Epoch
			}
			return next(ctx, a)
		}
	}},
	"stores a repeat again": {"Repeat", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			a.Ordinal = 0
			return next(ctx, a)
		}
	}},
	"one ordinal for all writers": {"Repeat", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			a.Writer = ""
			return next(ctx, a)
		}
	}},
	"settles what was not seen": {"Command", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			if a.Settle != nil {
				a.Settle = &spool.Settle{Seen: 1 << 40, Next: a.Settle.Next}
			}
			return next(ctx, a)
		}
	}},
	"answers partially after a trim": {"Trim", func(f *fault) {
		f.readKept = func(q spool.KeptQuery, s *memstore.Store, session string) ([]chunk.Record, spool.Head, error) {
			if h, err := s.Head(context.Background(), session); err == nil {
				q.After = max(q.After, h.Floor)
			}
			return s.ReadKept(context.Background(), session, q)
		}
	}},
	"loses the first record of a second incarnation": {"Model", func(f *fault) {
		f.readKept = func(q spool.KeptQuery, s *memstore.Store, session string) ([]chunk.Record, spool.Head, error) {
			rs, h, err := s.ReadKept(context.Background(), session, q)
			if h.Incarnation == 2 && len(rs) > 0 && rs[len(rs)-1].Seq == 1 {
				rs = rs[:len(rs)-1]
			}
			return rs, h, err
		}
	}},
	"reads with a head that is not that of the records": {"Model", func(f *fault) {
		f.readKept = func(q spool.KeptQuery, s *memstore.Store, session string) ([]chunk.Record, spool.Head, error) {
			rs, h, err := s.ReadKept(context.Background(), session, q)
			if h.Seq > 3 {
				h.Seq--
			}
			return rs, h, err
		}
	}},
	"takes commands for what is hidden": {"Hidden", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			res, err := next(ctx, a)
			if h, herr := f.Head(ctx, a.Session); herr == nil && a.Epoch == 0 && h.Hidden {
				a.Epoch = h.Epoch
				return next(ctx, a)
			}
			return res, err
		}
	}},
	"takes commands for sessions of others": {"Principal", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			a.SamePrincipal = false
			return next(ctx, a)
		}
	}},
	"gives leases on sessions of others": {"Principal", func(f *fault) {
		f.claim = func(c spool.Claim) spool.Claim { c.SamePrincipal = false; return c }
	}},
	"does not keep the principal of a claim": {"Principal", func(f *fault) {
		f.claim = func(c spool.Claim) spool.Claim { c.Principal = ""; return c }
	}},
	"tells the principal only with the row": {"Principal", func(f *fault) {
		f.readKept = func(q spool.KeptQuery, s *memstore.Store, session string) ([]chunk.Record, spool.Head, error) {
			rs, h, err := s.ReadKept(context.Background(), session, q)
			h.Principal = ""
			return rs, h, err
		}
	}},
	"does not count bytes": {"Age", func(f *fault) {
		f.session = func(i spool.SessionInfo) spool.SessionInfo { i.Bytes = 0; return i }
	}},
	"lists what is in use as idle": {"Age", func(f *fault) {
		f.query = func(q spool.SessionQuery) spool.SessionQuery { q.Idle = 0; return q }
	}},
	"deletes what is in use": {"Age", func(f *fault) {
		f.expire = func(ctx context.Context, s *memstore.Store, session string, _ time.Duration) error {
			return s.Delete(ctx, session)
		}
	}},
	"deletes what has an owner": {"Age", func(f *fault) {
		f.expire = func(ctx context.Context, s *memstore.Store, session string, idle time.Duration) error {
			if p, err := s.Sessions(ctx, spool.SessionQuery{Idle: idle}); err == nil && len(p.Sessions) > 0 {
				return s.Delete(ctx, session)
			}
			return s.Expire(ctx, session, idle)
		}
	}},
	"imports under epochs of its own": {"Import", func(f *fault) {
		f.importer = func(i spool.Import) spool.Import { i.Info.Head.Epoch = 0; return i }
	}},
	"imports into incarnations of its own": {"Import", func(f *fault) {
		f.importer = func(i spool.Import) spool.Import { i.Info.Head.Incarnation = min(i.Info.Head.Incarnation, 1); return i }
	}},
	"shows half of an import": {"Import", func(f *fault) {
		f.importer = func(i spool.Import) spool.Import {
			if n := len(i.Records); n > 0 && i.Records[n-1].Seq > i.Info.Head.TraceFloor {
				i.Info.Head.Seq, i.Done = i.Records[n-1].Seq, true
			}
			return i
		}
	}},
	"forgets the commands of an import": {"Import", func(f *fault) {
		f.importer = func(i spool.Import) spool.Import { i.Info.Head.Pending = false; return i }
	}},
	"imports what follows nothing": {"Import", func(f *fault) {
		f.importer = func(i spool.Import) spool.Import {
			if len(i.Records) > 0 && i.Records[0].Seq > i.Info.Head.TraceFloor {
				i.Info.Head.TraceFloor, i.After = i.Records[0].Seq-1, 0
			}
			return i
		}
	}},
	"cuts long titles": {"Bounds", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			a.Row.Title = a.Row.Title[:min(len(a.Row.Title), 255)]
			return next(ctx, a)
		}
	}},
	"takes any number of writers": {"Bounds", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			res, err := next(ctx, a)
			if a.Ordinal == 1 && errors.Is(err, chunk.ErrTooLarge) && len(a.Writer) < 10 {
				a.Ordinal = 0
				return next(ctx, a)
			}
			return res, err
		}
	}},
	"cuts data at the first zero byte": {"Size", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			a.Records = slices.Clone(a.Records)
			for i, r := range a.Records {
				a.Records[i].Data, _, _ = bytes.Cut(r.Data, []byte{0})
			}
			return next(ctx, a)
		}
	}},
	"mends data that is not UTF-8": {"Size", func(f *fault) {
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			a.Records = slices.Clone(a.Records)
			for i, r := range a.Records {
				a.Records[i].Data = bytes.ToValidUTF8(r.Data, []byte("\uFFFD"))
			}
			return next(ctx, a)
		}
	}},
	"reads kept records without a bound in bytes": {"Read", func(f *fault) {
		f.readKept = func(q spool.KeptQuery, s *memstore.Store, session string) (all []chunk.Record, h spool.Head, err error) {
			for {
				rs, h, err := s.ReadKept(context.Background(), session, q)
				if all = append(all, rs...); err != nil || len(rs) == 0 || q.Backwards {
					return all, h, err
				}
				q.After = rs[len(rs)-1].Seq
			}
		}
	}},
	"ends a page before the first large record": {"Read", func(f *fault) {
		f.read = func(rs []chunk.Record, err error) ([]chunk.Record, error) {
			if i := slices.IndexFunc(rs, func(r chunk.Record) bool { return len(r.Data) > 100_000 }); i >= 0 {
				rs = rs[:i]
			}
			return rs, err
		}
	}},
	"passes on the latest records": {"Wait", func(f *fault) {
		f.wait = func(ctx context.Context, s *memstore.Store, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
			h, next, err := s.Wait(ctx, session, seen)
			return h, next[max(0, len(next)-1):], err
		}
	}},
	"passes on records of another incarnation": {"Wait", func(f *fault) {
		f.wait = func(ctx context.Context, s *memstore.Store, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
			h, _, err := s.Wait(ctx, session, seen)
			next, _, _ := s.Read(ctx, session, seen.Seq, 0)
			return h, next, err
		}
	}},
	"ignores the agent filter": {"Lease", func(f *fault) {
		f.claim = func(c spool.Claim) spool.Claim { c.Agents = nil; return c }
	}},
	"reads records and head one after the other": {"Linear", func(f *fault) {
		f.readKept = func(q spool.KeptQuery, s *memstore.Store, session string) ([]chunk.Record, spool.Head, error) {
			rs, h, err := s.ReadKept(context.Background(), session, q)
			runtime.Gosched()
			if later, lerr := s.Head(context.Background(), session); lerr == nil && err == nil {
				h = later
			}
			return rs, h, err
		}
	}},
	"an instance knows only its own ordinals": {"Repeat", func(f *fault) {
		type writer struct {
			session, name  string
			epoch, ordinal uint64
		}
		var stored sync.Map // by writer
		f.append = func(ctx context.Context, a spool.Append, next appendFunc) (spool.Appended, error) {
			w := writer{a.Session, a.Writer, a.Epoch, a.Ordinal}
			if res, ok := stored.Load(w); ok {
				res := res.(spool.Appended)
				res.Repeated = true
				return res, nil
			}
			a.Ordinal = 0
			res, err := next(ctx, a)
			if err == nil && w.ordinal > 0 {
				stored.Store(w, res)
			}
			return res, err
		}
	}},
	"waits for records only": {"Wait", func(f *fault) {
		f.wait = func(ctx context.Context, s *memstore.Store, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
			for {
				h, next, err := s.Wait(ctx, session, seen)
				if err != nil || h.Seq > seen.Seq || seen == (spool.Head{}) {
					return h, next, err
				}
				if h.Epoch != seen.Epoch {
					return h, nil, context.DeadlineExceeded // a change of this kind never wakes
				}
				seen = h
			}
		}
	}},
}
