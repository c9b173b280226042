package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"
)

// keyPair is a certificate and its key in files. Each handshake looks whether the files
// have changed, so a renewed certificate is used from the next connection on.
type keyPair struct {
	cert, key string // paths
	log       *slog.Logger

	mu    sync.Mutex
	tried [2]fs.FileInfo // of the files when they were last loaded
	told  string         // the latest error
	pair  *tls.Certificate
}

// loadKeyPair loads a certificate for the first time.
func loadKeyPair(cert, key string, log *slog.Logger) (*keyPair, error) {
	k := &keyPair{cert: cert, key: key, log: log}
	files, err := k.stat()
	if err != nil {
		return nil, err
	}
	return k, k.load(files)
}

func (k *keyPair) stat() (files [2]fs.FileInfo, err error) {
	for i, name := range [...]string{k.cert, k.key} {
		if files[i], err = os.Stat(name); err != nil {
			return files, err
		}
	}
	return files, nil
}

// load loads the files. Files that change while they are read differ from those that
// were noted, and are loaded again.
func (k *keyPair) load(files [2]fs.FileInfo) error {
	k.tried = files
	pair, err := tls.LoadX509KeyPair(k.cert, k.key)
	if err == nil {
		k.pair = &pair
	}
	return err
}

// certificate is for [tls.Config.GetCertificate]. If the files are missing, or do not
// belong together, as in the middle of a renewal, it returns the previous certificate.
func (k *keyPair) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	files, err := k.stat()
	if err == nil && sameFile(files[0], k.tried[0]) && sameFile(files[1], k.tried[1]) {
		return k.pair, nil
	}
	if err == nil {
		err = k.load(files)
	}
	switch {
	case err == nil:
		k.told = ""
		k.log.Info("the certificate was loaded again", "cert", k.cert, "until", k.pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case k.told != err.Error():
		k.told = err.Error()
		k.log.Warn("the certificate cannot be loaded, the previous one stays in use", "cert", k.cert, "key", k.key, "err", err)
	}
	return k.pair, nil
}

func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// tls returns the server's TLS configuration, or nil for clear text.
func (c *serveCmd) tls(log *slog.Logger) (*tls.Config, error) {
	switch {
	case c.TLSCert == "" && c.TLSKey == "":
		return nil, nil
	case c.TLSKey == "":
		return nil, &usageError{"--tls-cert also needs --tls-key"}
	case c.TLSCert == "":
		return nil, &usageError{"--tls-key also needs --tls-cert"}
	case c.H2C:
		return nil, &usageError{"--h2c is for clear text: with --tls-cert, HTTP/2 is always offered"}
	}
	pair, err := loadKeyPair(c.TLSCert, c.TLSKey, log)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", c.TLSCert, c.TLSKey, err)
	}
	return &tls.Config{GetCertificate: pair.certificate}, nil
}

// protocols returns the versions of HTTP that the server speaks.
func (c *serveCmd) protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(c.H2C)
	return p
}

// trusting returns a client that trusts the certificates in a file, beside the system's.
func trusting(file string) (*http.Client, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	if !roots.AppendCertsFromPEM(data) {
		return nil, errors.New("the file has no certificate in PEM format")
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: roots}
	return &http.Client{Transport: t}, nil
}
