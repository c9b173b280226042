package sqlitestore

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	lib "modernc.org/sqlite/lib"
)

// engine is a connection as SQLite's own functions serve it. Through a driver of
// database/sql each column of a row would cost two locks, an interface and a copy, and each
// argument an allocation. It is used by one goroutine at a time, so SQLite takes no locks
// for it.
type engine struct {
	tls *libc.TLS
	db  uintptr
}

// engineError is an error of SQLite's.
type engineError struct {
	code int // extended
	msg  string
}

func (e *engineError) Error() string { return e.msg }

var patched = sync.OnceFunc(lib.PatchIssue199) // as the driver of the same module does before its first use

// connect opens an existing file.
func connect(path string) (*engine, error) {
	patched()
	e := &engine{tls: libc.NewTLS()}
	name, err := libc.CString(path)
	if err != nil {
		e.tls.Close()
		return nil, err
	}
	defer libc.Xfree(e.tls, name)
	out := e.tls.Alloc(int(unsafe.Sizeof(e.db)))
	defer e.tls.Free(int(unsafe.Sizeof(e.db)))
	rc := lib.Xsqlite3_open_v2(e.tls, name, out, lib.SQLITE_OPEN_READWRITE|lib.SQLITE_OPEN_NOMUTEX, 0)
	e.db = *(*uintptr)(pointer(out))
	if rc == lib.SQLITE_OK {
		rc = lib.Xsqlite3_extended_result_codes(e.tls, e.db, 1)
	}
	if rc != lib.SQLITE_OK {
		return nil, cmp.Or(e.failure(rc), e.close())
	}
	return e, nil
}

// close closes the connection. Its statements are closed before.
func (e *engine) close() error {
	err := e.failure(lib.Xsqlite3_close_v2(e.tls, e.db))
	e.tls.Close()
	return err
}

// failure returns the error of a result code, nil for SQLITE_OK.
func (e *engine) failure(rc int32) error {
	if rc == lib.SQLITE_OK {
		return nil
	}
	what := libc.GoString(lib.Xsqlite3_errstr(e.tls, rc))
	if e.db != 0 {
		if msg := libc.GoString(lib.Xsqlite3_errmsg(e.tls, e.db)); msg != what {
			what += ": " + msg
		}
	}
	return &engineError{int(rc), fmt.Sprintf("%s (%d)", what, rc)}
}

// script runs statements and drops their rows.
func (e *engine) script(sql string) error {
	text, err := libc.CString(sql)
	if err != nil {
		return err
	}
	defer libc.Xfree(e.tls, text)
	return e.failure(lib.Xsqlite3_exec(e.tls, e.db, text, 0, 0, 0))
}

// stmt is a prepared statement. Its rows are read before it runs again.
type stmt struct {
	e       *engine
	handle  uintptr
	columns int
	running bool
	args    uintptr // memory of the arguments that are text or blobs
	size    int
}

func (e *engine) prepare(sql string) (*stmt, error) {
	text, err := libc.CString(sql)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(e.tls, text)
	out := e.tls.Alloc(int(unsafe.Sizeof(e.db)))
	defer e.tls.Free(int(unsafe.Sizeof(e.db)))
	if err := e.failure(lib.Xsqlite3_prepare_v2(e.tls, e.db, text, -1, out, 0)); err != nil {
		return nil, err
	}
	s := &stmt{e: e, handle: *(*uintptr)(pointer(out))}
	s.columns = int(lib.Xsqlite3_column_count(e.tls, s.handle))
	return s, nil
}

func (s *stmt) close() {
	lib.Xsqlite3_finalize(s.e.tls, s.handle)
	libc.Xfree(s.e.tls, s.args)
}

// keptArgs is the memory for arguments that a statement keeps.
const keptArgs = 64 << 10

// room makes sure that there is memory for arguments of n bytes.
func (s *stmt) room(n int) error {
	if n <= s.size {
		return nil
	}
	s.release()
	n = max(n, 256)
	if s.args = libc.Xmalloc(s.e.tls, types.Size_t(n)); s.args == 0 {
		return s.e.failure(lib.SQLITE_NOMEM)
	}
	s.size = n
	return nil
}

func (s *stmt) release() {
	libc.Xfree(s.e.tls, s.args)
	s.args, s.size = 0, 0
}

// bind sets the arguments: int64, string, []byte or nil. Text and blobs are copied to the
// statement's memory, where they stay until it is reset.
func (s *stmt) bind(args []driver.Value) error {
	need := 1
	for _, a := range args {
		switch a := a.(type) {
		case string:
			need += len(a)
		case []byte:
			need += len(a)
		}
	}
	if err := s.room(need); err != nil {
		return err
	}
	memory, used := bytesAt(s.args, s.size), 0
	for i, a := range args {
		rc, n, at := int32(lib.SQLITE_OK), int32(i+1), s.args+uintptr(used)
		switch a := a.(type) {
		case nil:
			rc = lib.Xsqlite3_bind_null(s.e.tls, s.handle, n)
		case int64:
			rc = lib.Xsqlite3_bind_int64(s.e.tls, s.handle, n, a)
		case string:
			used += copy(memory[used:], a)
			rc = lib.Xsqlite3_bind_text(s.e.tls, s.handle, n, at, int32(len(a)), 0)
		case []byte:
			used += copy(memory[used:], a)
			rc = lib.Xsqlite3_bind_blob(s.e.tls, s.handle, n, at, int32(len(a)), 0)
		default:
			return fmt.Errorf("an argument of type %T", a)
		}
		if rc != lib.SQLITE_OK {
			return s.e.failure(rc)
		}
	}
	return nil
}

// run runs the statement and calls fn for each row, until fn fails.
func (s *stmt) run(args []driver.Value, fn func(row) error) (err error) {
	if s.running {
		return errors.New("the statement is running: its rows must be read first")
	}
	s.running = true
	defer s.reset()
	if err := s.bind(args); err != nil {
		return err
	}
	for {
		switch rc := lib.Xsqlite3_step(s.e.tls, s.handle); rc {
		case lib.SQLITE_DONE:
			return nil
		case lib.SQLITE_ROW:
			if fn == nil {
				continue
			}
			if err := fn(row{s}); err != nil {
				return err
			}
		default:
			return s.e.failure(rc)
		}
	}
}

func (s *stmt) reset() {
	lib.Xsqlite3_reset(s.e.tls, s.handle)
	lib.Xsqlite3_clear_bindings(s.e.tls, s.handle)
	s.running = false
	if s.size > keptArgs {
		s.release()
	}
}

// row is the present row of a statement.
type row struct{ s *stmt }

func (r row) number(i int) int64 {
	return lib.Xsqlite3_column_int64(r.s.e.tls, r.s.handle, int32(i))
}

// bytes returns a column of text or a blob, which is valid until the next row.
func (r row) bytes(i int) []byte {
	at := lib.Xsqlite3_column_blob(r.s.e.tls, r.s.handle, int32(i))
	return bytesAt(at, int(lib.Xsqlite3_column_bytes(r.s.e.tls, r.s.handle, int32(i))))
}

// values appends all columns: int64, float64, string, []byte or nil.
func (r row) values(out []driver.Value) []driver.Value {
	for i := range r.s.columns {
		var v driver.Value
		switch lib.Xsqlite3_column_type(r.s.e.tls, r.s.handle, int32(i)) {
		case lib.SQLITE_INTEGER:
			v = r.number(i)
		case lib.SQLITE_FLOAT:
			v = lib.Xsqlite3_column_double(r.s.e.tls, r.s.handle, int32(i))
		case lib.SQLITE_TEXT:
			v = string(r.bytes(i))
		case lib.SQLITE_BLOB:
			v = append([]byte(nil), r.bytes(i)...)
		}
		out = append(out, v)
	}
	return out
}

// pointer is the address of memory that is not Go's.
func pointer(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }

func bytesAt(at uintptr, n int) []byte {
	if at == 0 || n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(at)), n)
}
