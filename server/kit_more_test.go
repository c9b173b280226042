package server_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing/fstest"

	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
)

func noGrace() server.Options { return server.Options{ReplayGrace: -1} }

func (k *kit) snapshot(session string) chat.Snapshot {
	k.Helper()
	var s chat.Snapshot
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/api/chat/"+session+"/snapshot", ""), &s); err != nil {
		k.Fatal(err)
	}
	return s
}

// beside is a second server over the same logs.
func (k *kit) beside(o *server.Options) *kit {
	k.Helper()
	b := &kit{T: k.T, store: k.store, logs: k.logs, srv: server.New(k.logs, o)}
	b.http = httptest.NewServer(b.srv)
	k.Cleanup(func() {
		b.http.CloseClientConnections()
		b.http.Close()
	})
	return b
}

func assets() fs.FS {
	return fstest.MapFS{
		"index.html":      {Data: []byte("<p>page")},
		"assets/a-123.js": {Data: []byte("1")},
	}
}
