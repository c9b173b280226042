package server_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/spool-run/spool/internal/pipenet"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// inBubble runs a test whose server has a time of its own, which no slow machine
// can use up.
func inBubble(t *testing.T, o *server.Options, test func(k *kit)) {
	inBubbleAs(t, o, func(*kit, *http.Transport) {}, test)
}

// inBubbleAs is inBubble; prepare is called before the server starts.
func inBubbleAs(t *testing.T, o *server.Options, prepare func(k *kit, client *http.Transport), test func(k *kit)) {
	synctest.Test(t, func(t *testing.T) {
		k := newKitAt(t, memstore.New(nil), o)
		network := pipenet.Listen()
		_ = k.http.Listener.Close()
		k.http.Listener = network
		client := &http.Transport{DialContext: network.Dial}
		prepare(k, client)
		k.http.Start()
		k.http.Client().Transport = client
		test(k)
	})
}
