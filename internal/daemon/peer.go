package daemon

import (
	"context"
	"net"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/schemas/tga"
)

// peer identifies the process at the other end of a connection.
type peer struct {
	uid, gid uint32
	role     config.Role
	err      error // why the kernel did not identify the peer
}

// name is the name of the peer in the log, for example as the voter of a vote.
func (p peer) name() string { return config.PeerName(p.uid) }

// barred is the error for a peer that has no verb; nil if it has one.
func (p peer) barred() error {
	if len(p.role.Verbs) == 0 {
		return tga.Errorf(tga.PermissionDenied, "%s has no verb on this socket", p.name())
	}
	return nil
}

// namespace is the namespace of a request. A peer whose role is bound to a namespace can name only
// that one, and any other peer can name any.
func (p peer) namespace(asked string) (string, error) {
	switch {
	case p.role.Namespace == config.AnyNamespace && asked != "":
		return asked, nil
	case p.role.Namespace == config.AnyNamespace:
		return tga.DefaultNamespace, nil
	case asked != "" && asked != p.role.Namespace:
		return "", tga.Errorf(tga.PermissionDenied, "%s acts in namespace %q, not %q", p.name(), p.role.Namespace, asked).At("/namespace")
	}
	return p.role.Namespace, nil
}

// sees reports whether the peer may reach traces of a namespace. A trace whose request is erased
// has none (""): only a peer that sees every namespace may reach it.
func (p peer) sees(namespace string) bool {
	return p.role.Namespace == config.AnyNamespace || namespace != "" && namespace == p.role.Namespace
}

// all reports whether the peer sees every namespace.
func (p peer) all() bool { return p.role.Namespace == config.AnyNamespace }

// ownLock returns the path of a lock file if it exists and belongs to the peer's user, else "". The
// file of another user says nothing about the peer. A file that this process does not find may be
// one that it cannot see. In both cases "" means that nothing is known, and not that the lock is free.
func (p peer) ownLock(path string) string {
	if uid, ok := filelock.Owner(path); path == "" || !ok || uid != p.uid {
		return ""
	}
	return path
}

type connKey struct{}

// identify is the http.Server.ConnContext: it puts what [gatekeeper] found out into the context. The
// credentials are those of the process that connected, also if it passes the descriptor on later.
func identify(ctx context.Context, c net.Conn) context.Context {
	if k, ok := c.(*keptConn); ok {
		return context.WithValue(ctx, connKey{}, &k.connection)
	}
	return ctx
}

// connection is what is known of the connection that a request came on.
type connection struct {
	peer    peer
	refusal error // if not nil, the only answer that the connection gets
}

func connectionOf(ctx context.Context) *connection {
	c, ok := ctx.Value(connKey{}).(*connection)
	if !ok {
		// The connection is not one of this package's listener, so its peer is not known.
		return &connection{refusal: tga.Errorf(tga.PermissionDenied, "the connection has no peer")}
	}
	return c
}
