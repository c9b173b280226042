package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// makePair writes a certificate of its own for this machine, and its key.
func makePair(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// A renewed certificate is used from the next connection on. Until both files are whole and
// belong together, the previous one stays in use; the log says so once.
func TestCertificateIsLoadedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	oldCert, oldKey := makePair(t, dir, "old")
	newCert, newKey := makePair(t, dir, "new")
	cert, key := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	replace := func(at, by string) {
		t.Helper()
		data, err := os.ReadFile(by)
		if err == nil {
			err = os.WriteFile(at+".tmp", data, 0o600)
		}
		if err == nil {
			err = os.Rename(at+".tmp", at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	replace(cert, oldCert)
	replace(key, oldKey)
	var log bytes.Buffer
	pair, err := loadKeyPair(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	shown := func(want string, warnings int) {
		t.Helper()
		for range 3 { // connections
			got, err := pair.certificate(nil)
			if err != nil || got.Leaf.Subject.CommonName != want {
				t.Fatalf("%v, %v; want the certificate %q", got, err, want)
			}
		}
		if n := strings.Count(log.String(), "level=WARN"); n != warnings {
			t.Errorf("%d warnings, want %d:\n%s", n, warnings, log.String())
		}
	}
	shown("old", 0)
	replace(cert, newCert)
	shown("old", 1) // its key is not there yet
	replace(key, newKey)
	shown("new", 1)
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	shown("new", 2)
	replace(key, oldKey)
	replace(cert, oldCert)
	shown("old", 2)
	if text := log.String(); strings.Count(text, "level=INFO") != 2 || strings.Contains(text, "PRIVATE") {
		t.Error(text)
	}
}

// Streams of the real server arrive over HTTPS with HTTP/2: in Go's client, in curl, in the
// fetch of Node, and in spool tail. Over clear text HTTP/2 is spoken with --h2c alone.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := makePair(t, dir, "server")
	secure := serveSpool(t, filepath.Join(dir, "tls.db"), "--tls-cert", cert, "--tls-key", key)
	if !strings.HasPrefix(secure.url, "https://127.0.0.1:") {
		t.Fatalf("the server printed %q", secure.url)
	}
	trusted, err := trusting(cert)
	if err != nil {
		t.Fatal(err)
	}
	stream := func(client *http.Client, url string, major int) {
		t.Helper()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/chat/s-"+t.Name(), strings.NewReader(`{"message": "hello"}`))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil || res.ProtoMajor != major || !strings.HasSuffix(string(data), "data: [DONE]\n\n") {
			t.Errorf("%s %s, %v: %s", res.Proto, res.Status, err, data)
		}
	}
	stream(trusted, secure.url, 2)

	for _, tool := range []struct {
		name string
		args []string
		want string
	}{
		{"curl", []string{"--silent", "--show-error", "--http2", "--cacert", cert, "--write-out", "HTTP/%{http_version}", secure.url + "/api/chat/s-" + t.Name() + "/stream"}, "data: [DONE]\n\nHTTP/2"},
		{"node", []string{"-e", `const res = await fetch(process.argv[1]); let text = ''; for await (const part of res.body.pipeThrough(new TextDecoderStream())) text += part; process.stdout.write(text)`, "--input-type=module", secure.url + "/api/chat/s-" + t.Name() + "/stream"}, "data: [DONE]\n\n"},
		{"spool", []string{"tail", "s-" + t.Name(), "--once", "--server", secure.url, "--cacert", cert}, `"type":"run_finished"`},
		{"spool", []string{"sessions", "--server", secure.url}, "s-" + t.Name()},
	} {
		path, err := exec.LookPath(tool.name)
		if err != nil {
			t.Logf("%s is not installed here", tool.name)
			continue
		}
		cmd := exec.CommandContext(t.Context(), path, tool.args...)
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+cert, "NODE_EXTRA_CA_CERTS="+cert)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), tool.want) {
			t.Errorf("%s %q: %v\n%s", tool.name, tool.args, err, out)
		}
	}
	untrusting := exec.CommandContext(t.Context(), mustFind(t, "spool"), "sessions", "--server", secure.url)
	untrusting.Env = append(os.Environ(), "SSL_CERT_FILE="+os.DevNull, "SSL_CERT_DIR="+dir+"/none")
	if out, err := untrusting.CombinedOutput(); err == nil || !strings.Contains(string(out), "--cacert") || bytes.Count(out, []byte("\n")) != 1 {
		t.Errorf("a server that is not trusted: %v\n%s", err, out)
	}

	clear := new(http.Protocols)
	clear.SetUnencryptedHTTP2(true)
	prior := &http.Client{Transport: &http.Transport{Protocols: clear}}
	h2c := serveSpool(t, filepath.Join(dir, "h2c.db"), "--h2c")
	stream(prior, h2c.url, 2)
	stream(http.DefaultClient, h2c.url, 1)
	plain := serveSpool(t, filepath.Join(dir, "plain.db"))
	if res, err := prior.Get(plain.url + "/healthz"); err == nil {
		t.Errorf("without --h2c: %s %s", res.Proto, res.Status)
		_ = res.Body.Close()
	}
}

func mustFind(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// deaf is a connection that reads nothing more once it is closed to that.
type deaf struct {
	net.Conn
	never chan struct{}
	after int // bytes
}

func (d *deaf) Read(p []byte) (int, error) {
	if d.after <= 0 {
		<-d.never
		return 0, net.ErrClosed
	}
	n, err := d.Conn.Read(p)
	d.after -= n
	return n, err
}

// A connection over which nothing can be written any more is closed: its streams cannot
// even be reset.
func TestStuckConnection(t *testing.T) {
	t.Parallel()
	ended, never := make(chan struct{}), make(chan struct{})
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &serveCmd{H2C: true, WriteLimit: 200 * time.Millisecond}
	srv := c.httpServer(endless, nil, slog.New(slog.DiscardHandler))
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	defer close(never)
	client := &http.Transport{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 30, MaxReceiveBufferPerConnection: 1 << 30}}
	client.Protocols.SetUnencryptedHTTP2(true)
	client.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &deaf{conn, never, 64 << 10}, err
	}
	go func() {
		res, err := (&http.Client{Transport: client}).Get("http://" + l.Addr().String())
		if err == nil {
			<-ended
			_ = res.Body.Close()
		}
	}()
	<-ended
}
