package embedded

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/spool-run/spool/store/natsstore"
)

// Options says where a server keeps its data and who may reach it.
type Options struct {
	// Dir is the directory of the data. One process at a time has it.
	Dir string
	// Members are the addresses, HOST:PORT, at which the three or five servers of a cluster
	// reach each other, the same in all of them. None: the server is alone.
	Members []string
	// Self is which member this server is. The others know it by this name, so it must not
	// change.
	Self string
	// Bind is where this server listens for the other members. "": at Self.
	Bind string
	// Secret is what members and clients must know. Without one, the server listens on
	// loopback addresses only.
	Secret string
	// Clients is where the server listens for NATS clients, which need Secret as their token.
	// "": it has no clients but this process.
	Clients string
	// Replicas is on how many members the streams are kept when they are made: 1, 3 or 5.
	// 0: 3 in a cluster, and 1 without.
	Replicas int
	// SyncAlways and SyncInterval say whether a message is on the disk before it is
	// acknowledged, or up to two minutes later: then a loss of power may lose it, unless
	// another member has it. Neither: always without a cluster.
	SyncAlways, SyncInterval bool
	// Prefix begins the names of streams. "": [natsstore.DefaultPrefix].
	Prefix string
	// Timeout is that of the store's calls. 0: five seconds.
	Timeout time.Duration
	// Now is the store's clock, as in [natsstore.Options].
	Now func() time.Time
	// Log gets what the server has to say; nil: nothing does.
	Log *slog.Logger
}

// Check returns what is wrong with the options, or nil.
func (o *Options) Check() error {
	if o.Dir == "" {
		return errors.New("dir=PATH")
	}
	if !slices.Contains([]int{0, 1, 3, 5}, o.Replicas) || o.Replicas > max(1, len(o.Members)) {
		return errors.New("replicas=1, 3 or 5, and no more than members")
	}
	if o.SyncAlways && o.SyncInterval {
		return errors.New("one way to sync")
	}
	if err := o.checkMembers(); err != nil {
		return err
	}
	for name, addr := range map[string]string{"self or bind": o.bind(), "clients": o.Clients} {
		if addr == "" {
			continue
		}
		host, _, err := split(addr)
		if err != nil {
			return fmt.Errorf("%s as HOST:PORT", name)
		}
		if o.Secret == "" && !isLoopback(host) {
			return fmt.Errorf("a secret-file, or a loopback address in %s", name)
		}
	}
	return nil
}

func (o *Options) checkMembers() error {
	if len(o.Members) == 0 {
		if o.Self != "" || o.Bind != "" {
			return errors.New("cluster=HOST:PORT,HOST:PORT,HOST:PORT with self and bind")
		}
		return nil
	}
	if n := len(o.Members); n != 3 && n != 5 {
		return errors.New("three or five members in cluster")
	}
	for i, m := range o.Members {
		if _, port, err := split(m); err != nil || port == 0 {
			return errors.New("cluster=HOST:PORT,HOST:PORT,HOST:PORT")
		}
		if slices.Contains(o.Members[:i], m) {
			return errors.New("each member once in cluster")
		}
	}
	if !slices.Contains(o.Members, o.Self) {
		return errors.New("self=HOST:PORT, one of those in cluster")
	}
	return nil
}

// bind is where the server listens for members, "" without any.
func (o *Options) bind() string {
	if o.Bind != "" {
		return o.Bind
	}
	return o.Self
}

func (o *Options) replicas() int {
	switch {
	case o.Replicas != 0:
		return o.Replicas
	case len(o.Members) > 0:
		return 3
	}
	return 1
}

func (o *Options) prefix() string {
	if o.Prefix == "" {
		return natsstore.DefaultPrefix
	}
	return o.Prefix
}

// split takes HOST:PORT apart.
func split(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && host == "" {
		err = errors.New("no host")
	}
	return host, int(n), err
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// clusterUser is the user of all members. The secret is its password.
const clusterUser = "spool"

// server are the options of the NATS server.
func (o *Options) server() (*server.Options, error) {
	so := &server.Options{ServerName: "spool", NoSigs: true, JetStream: true, StoreDir: o.Dir,
		SyncAlways: o.SyncAlways || !o.SyncInterval && len(o.Members) == 0, Authorization: o.Secret, DisableJetStreamBanner: true}
	clients := o.Clients
	if clients == "" {
		// A member connects to the others only if it listens for clients. Nobody knows this
		// token.
		clients, so.Authorization = "127.0.0.1:0", rand.Text()
	}
	var err error
	if so.Host, so.Port, err = split(clients); err != nil {
		return nil, err
	}
	if so.Port == 0 {
		so.Port = server.RANDOM_PORT
	}
	if len(o.Members) == 0 {
		so.DontListen = o.Clients == ""
		return so, nil
	}
	so.ServerName = o.Self
	// Members are not told of each other: their addresses are those in the options.
	so.Cluster = server.ClusterOpts{Name: o.prefix(), NoAdvertise: true}
	if so.Cluster.Host, so.Cluster.Port, err = split(o.bind()); err != nil {
		return nil, err
	}
	user := url.UserPassword(clusterUser, o.Secret)
	if o.Secret == "" {
		user = nil
	} else {
		so.Cluster.Username, so.Cluster.Password = clusterUser, o.Secret
	}
	for _, m := range o.Members {
		if m != o.Self {
			so.Routes = append(so.Routes, &url.URL{Scheme: "nats-route", User: user, Host: m})
		}
	}
	return so, nil
}
