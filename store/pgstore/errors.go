package pgstore

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Codes of the server's errors, or the classes that they begin with.
const (
	codePrivilege = "42501"
	codeReadOnly  = "25006"
	codeLock      = "55P03"
	codeSerialize = "40001"
	codeDeadlock  = "40P01"
	codeFull      = "53100"
	classRights   = "28"
	classLimits   = "53"
)

func serverError(err error) *pgconn.PgError {
	e, _ := errors.AsType[*pgconn.PgError](err)
	return e
}

// rolledBack reports whether the server has undone a transaction that may succeed when it is
// repeated.
func rolledBack(err error) bool {
	e := serverError(err)
	return e != nil && (e.Code == codeSerialize || e.Code == codeDeadlock)
}

// refused reports whether the server says that a statement failed, so that nothing of its
// transaction was stored. Of an error that ends the connection nobody knows.
func refused(err error) bool {
	e := serverError(err)
	return e != nil && e.SeverityUnlocalized == "ERROR"
}

// unstored says of an error that nothing was stored.
func unstored(err error) error {
	out := translate(err)
	known, ok := errors.AsType[*chunk.Error](out)
	if !ok || !errors.Is(known, spool.ErrUnavailable) {
		return out
	}
	return known.With("", spool.ErrNotStored.With("", known.Err))
}

// translate turns the server's errors into the package's errors. It returns other errors
// unchanged.
func translate(err error) error {
	if err == nil {
		return nil
	}
	if chunk.CodeOf(err) != "" || errors.Is(err, context.Canceled) {
		return err
	}
	e := *spool.ErrUnavailable
	e.Err = err
	known := serverError(err)
	if known == nil {
		return &e
	}
	switch {
	case known.Code == codeFull:
		e.Message, e.Hint = "the server's disk is full", "free disk space"
	case known.Code == codeLock:
		e.Message, e.Hint = "another process keeps a session's row locked", "look for long transactions in pg_stat_activity"
	case known.Code == codeReadOnly:
		e.Message, e.Hint = "the server can only be read", "name the primary, or several hosts with target_session_attrs=read-write"
	case known.Code == codePrivilege:
		e.Message, e.Hint = "the role lacks a privilege: "+known.Message, "let its owner make the schema, or give the role the right to create one in the database"
	case strings.HasPrefix(known.Code, classRights):
		e.Message, e.Hint = "the server refuses the role or its password", "check the address, and pg_hba.conf"
	case strings.HasPrefix(known.Code, classLimits):
		e.Message, e.Hint = "the server lacks memory or connections: "+known.Message, "see max_connections, and the option connections"
	}
	return &e
}
