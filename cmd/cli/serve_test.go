package cli

import "testing"

// A list of host names holds on every address. Without one, a server on a loopback
// address answers only as this machine, and others answer to every name. Any page may use
// the server with --cors-origin '*', without its user's cookies.
func TestHostsAndOrigins(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		local bool
		list  []string
		host  string
		want  bool
	}{
		{true, nil, "localhost", true},
		{true, nil, "spool.example", false},
		{true, []string{"spool.example"}, "Spool.example", true},
		{true, []string{"*"}, "other.example", true},
		{false, nil, "other.example", true},
		{false, []string{"spool.example"}, "spool.example", true},
		{false, []string{"spool.example"}, "127.0.0.1", true},
		{false, []string{"spool.example"}, "other.example", false},
		{false, []string{"spool.example"}, "10.0.0.1", false},
		{false, []string{"*"}, "other.example", true},
	} {
		c := serveCmd{AllowHost: tt.list}
		if got := c.serverOptions(tt.local).AllowHost(tt.host); got != tt.want {
			t.Errorf("local %v, --allow-host %v: %s is allowed: %v", tt.local, tt.list, tt.host, got)
		}
	}
	for _, any := range []bool{false, true} {
		c := serveCmd{CORSOrigin: []string{"https://app.example"}}
		if any {
			c.CORSOrigin = append(c.CORSOrigin, "*")
		}
		o := c.serverOptions(true)
		for origin, want := range map[string]bool{"https://app.example": true, "http://localhost:5173": true, "https://evil.example": false} {
			if got := o.AllowOrigin(origin); got != want {
				t.Errorf("%v: %s is allowed with credentials: %v", c.CORSOrigin, origin, got)
			}
		}
		if o.AllowAnyOrigin != any {
			t.Errorf("%v: any origin: %v", c.CORSOrigin, o.AllowAnyOrigin)
		}
	}
}
