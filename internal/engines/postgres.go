//go:build unix

package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// Postgres starts a PostgreSQL server with the database "postgres" and the role "spool", which
// needs no password. It does not sync to the disk, which only a loss of power would tell.
// Further arguments are settings: "-c", "max_connections=50". Stop shuts it down in PostgreSQL's
// fast mode; StopWith(syscall.SIGQUIT) is the immediate mode.
func Postgres(t testing.TB, args ...string) *Server {
	t.Helper()
	return postgres(t, args, "initdb", "-U", "spool", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
}

// PostgresStandby starts a standby of a server, which follows it asynchronously until the
// server's synchronous_standby_names says otherwise. pg_promote() ends that.
func PostgresStandby(t testing.TB, of *Server, args ...string) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(of.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return postgres(t, args, "pg_basebackup", "-h", host, "-p", port, "-U", "spool", "-R", "-X", "stream", "-c", "fast", "--no-sync")
}

// postgres starts a server on the files that a program makes.
func postgres(t testing.TB, settings []string, program string, args ...string) *Server {
	t.Helper()
	return Start(t, Engine{
		Name: "postgres",
		Prepare: func(dir string) error {
			if err := giveToPostgres(dir); err != nil {
				return err
			}
			cmd := asPostgres(postgresProgram(program), append(args, "-D", filepath.Join(dir, "data"))...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", program, err, out)
			}
			return nil
		},
		Command: func(dir string, port int) *exec.Cmd {
			all := []string{"-D", filepath.Join(dir, "data"), "-p", strconv.Itoa(port), "-k", dir,
				"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=64MB", "-c", "max_connections=400"}
			cmd := asPostgres(postgresProgram("postgres"), append(all, settings...)...)
			cmd.Dir = dir
			return cmd
		},
		Ready: postgresReady,
		Stop:  syscall.SIGINT,
	})
}

// PostgresURL is the address of the server's database.
func PostgresURL(addr string) string {
	return "postgres://spool@" + addr + "/postgres?sslmode=disable"
}

// postgresProgram finds a program of the newest PostgreSQL. Debian has only some of them in the
// path.
func postgresProgram(name string) string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) > 0 {
		return slices.Max(found)
	}
	return name
}

// asPostgres is a command that does not run as root, which PostgreSQL refuses.
func asPostgres(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	if uid, gid, err := postgresUser(); err == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	return cmd
}

var errNotRoot = errors.New("not root")

// postgresUser returns the user that runs the server if this process is root's.
func postgresUser() (uid, gid int, err error) {
	if os.Getuid() != 0 {
		return 0, 0, errNotRoot
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return 0, 0, err
	}
	uid, err = strconv.Atoi(u.Uid)
	if err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

func giveToPostgres(dir string) error {
	uid, gid, err := postgresUser()
	if errors.Is(err, errNotRoot) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

// PostgresRecover makes a stopped server's next start end as a promotion does: in a new
// timeline.
func PostgresRecover(t testing.TB, s *Server) {
	t.Helper()
	data := filepath.Join(s.Dir(), "data")
	signal := filepath.Join(data, "recovery.signal")
	err := os.WriteFile(signal, nil, 0o600)
	if err == nil {
		err = giveToPostgres(signal)
	}
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(filepath.Join(data, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0); err == nil {
			_, err = f.WriteString("restore_command = 'false'\n")
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// PgBouncer starts a pooler before a PostgreSQL server. mode is "session" or "transaction".
func PgBouncer(t testing.TB, of *Server, mode string) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(of.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return Start(t, Engine{
		Name:    "pgbouncer",
		Prepare: giveToPostgres,
		Command: func(dir string, own int) *exec.Cmd {
			config := fmt.Sprintf("[databases]\n* = host=%s port=%s user=spool\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = %s\nmax_client_conn = 200\ndefault_pool_size = 50\n",
				host, port, own, mode)
			file := filepath.Join(dir, "pgbouncer.ini")
			if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
				t.Error(err)
			}
			program := "pgbouncer"
			if _, err := exec.LookPath(program); err != nil {
				program = "/usr/sbin/pgbouncer"
			}
			return asPostgres(program, file)
		},
		Ready: postgresReady,
		Stop:  syscall.SIGINT,
	})
}

func postgresReady(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	return exec.CommandContext(ctx, postgresProgram("pg_isready"), "-q", "-h", host, "-p", port, "-U", "spool", "-d", "postgres").Run()
}
