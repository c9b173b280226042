package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

//go:embed lua/*.lua
var sources embed.FS

// script is one that all processes run under the hash of its text.
type script struct {
	name, text, sha string
	writes          bool // it is acknowledged by replicas
}

func newScript(name string, writes bool) *script {
	text := source("common") + source(name)
	sum := sha1.Sum([]byte(text))
	return &script{name, text, hex.EncodeToString(sum[:]), writes}
}

func source(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	appendScript = newScript("append", true)
	claimScript  = newScript("claim", true)
	leaseScript  = newScript("lease", true)
	trimScript   = newScript("trim", true)
	freeScript   = newScript("free", true)
	deleteScript = newScript("delete", true)
	keepScript   = newScript("keep", true)
	importScript = newScript("import", true)
	raiseScript  = newScript("raise", true)
	readScript   = newScript("read", false)
	rowsScript   = newScript("rows", false)
	dueScript    = newScript("due", false)
	listScript   = newScript("list", false)
	usageScript  = newScript("usage", false)
	keptScript   = newScript("kept", false)
	checkText    = source("check")
)

// reply is the answer of a script, after its code.
type reply []rueidis.RedisMessage

func (r reply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	t, _ := r[i].ToString()
	return t
}

func (r reply) number(i int) uint64 {
	n, _ := strconv.ParseUint(r.text(i), 10, 64)
	return n
}

func (r reply) milli(i int) int64 { return int64(r.number(i)) }

func (r reply) list(i int) []rueidis.RedisMessage {
	if i >= len(r) {
		return nil
	}
	list, _ := r[i].ToArray()
	return list
}

// run runs a script on a bucket. session is for errors.
func (s *Store) run(ctx context.Context, bucket int, sc *script, session string, args ...string) (reply, error) {
	var out reply
	err := s.within(ctx, func(ctx context.Context) (err error) {
		out, err = s.try(ctx, bucket, sc, session, args)
		return err
	})
	return out, err
}

func (s *Store) try(ctx context.Context, bucket int, sc *script, session string, args []string) (reply, error) {
	if s.dials.Load() != s.verified.Load() {
		if err := s.check(ctx); err != nil {
			return nil, err
		}
	}
	args = append([]string{s.offset(), s.publish}, args...)
	tag := s.tags[bucket]
	byHash := func() rueidis.Completed {
		return s.client.B().Evalsha().Sha1(sc.sha).Numkeys(1).Key(tag).Arg(args...).Build()
	}
	byText := func() rueidis.Completed {
		return s.client.B().Eval().Script(sc.text).Numkeys(1).Key(tag).Arg(args...).Build()
	}
	// A server without the script has lost its memory, and perhaps records. Every process
	// checks that before it loads the script.
	command := byHash
	var lost error
	for range 3 {
		out, err := s.execute(ctx, sc, command())
		e, ok := rueidis.IsRedisErr(err)
		if ok && e.IsNoScript() {
			if err := s.check(ctx); err != nil {
				return nil, err
			}
			command = byText
			continue
		}
		if err != nil && !ok && !sc.writes && ctx.Err() == nil {
			lost = err // the connection, and nothing else
			continue
		}
		if err != nil {
			return nil, translate(err)
		}
		list, err := out.ToArray()
		if err != nil || len(list) == 0 {
			return nil, spool.ErrUnavailable.Because("Redis gave an answer that the store does not know").With(session, err)
		}
		code, _ := list[0].ToString()
		if code == "nobase" { // the database is empty
			if err := s.check(ctx); err != nil {
				return nil, err
			}
			command = byHash
			continue
		}
		return list[1:], refused(code, session, list[1:])
	}
	if lost != nil {
		return nil, translate(lost)
	}
	return nil, spool.ErrUnavailable.Because("Redis forgets its scripts").With(session, spool.ErrNotStored)
}

// refused is the error for what a script answers.
func refused(code, session string, r reply) error {
	switch code {
	case "ok":
		return nil
	case "superseded":
		return spool.ErrSuperseded.With(session, nil)
	case "notfound":
		return spool.ErrNotFound.With(session, nil)
	case "exists":
		return spool.ErrExists.With(session, nil)
	case "nothing":
		return spool.ErrNothingDue
	case "busy":
		return spool.ErrBusy.With(session, nil)
	case "trimmed":
		return spool.ErrTrimmed.With(session, nil)
	case "later":
		return chunk.ErrInvalid.Because("a later append of this writer is stored").With(session, nil)
	case "writers":
		return chunk.ErrTooLarge.Because("the epoch has "+r.text(0)+" writers").With(session, nil)
	case "follow":
		return chunk.ErrInvalid.Because("the part does not follow the records that are stored").With(session, nil)
	}
	return spool.ErrUnavailable.Because("Redis gave an answer that the store does not know").With(session, nil)
}

func (s *Store) execute(ctx context.Context, sc *script, c rueidis.Completed) (rueidis.RedisMessage, error) {
	if sc.writes {
		return s.acknowledged(ctx, c)
	}
	return s.client.Do(ctx, c).ToMessage()
}

// acknowledged executes a command that writes, and waits until the replicas have it.
func (s *Store) acknowledged(ctx context.Context, c rueidis.Completed) (out rueidis.RedisMessage, err error) {
	if s.o.Replicas == 0 {
		return s.client.Do(ctx, c).ToMessage()
	}
	err = s.client.Dedicated(func(conn rueidis.DedicatedClient) error { // WAIT is for what its connection wrote
		wait := conn.B().Wait().Numreplicas(int64(s.o.Replicas)).Timeout(s.o.ReplicaTimeout.Milliseconds()).Build()
		results := conn.DoMulti(ctx, c, wait)
		if out, err = results[0].ToMessage(); err != nil {
			return err
		}
		n, err := results[1].AsInt64()
		if err == nil && n < int64(s.o.Replicas) && !refusal(out) {
			err = spool.ErrUnavailable.Because(strconv.FormatInt(n, 10) + " of " + strconv.Itoa(s.o.Replicas) + " replicas have the write")
		}
		return err
	})
	return out, err
}

// refusal reports whether an answer is that of a script which changed nothing.
func refusal(m rueidis.RedisMessage) bool {
	list, err := m.ToArray()
	if err != nil || len(list) == 0 {
		return false
	}
	code, _ := list[0].ToString()
	return code != "ok"
}

func (s *Store) offset() string {
	if s.o.offset == nil {
		return "0"
	}
	return strconv.FormatInt(s.o.offset().Milliseconds(), 10)
}
