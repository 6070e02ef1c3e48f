package daemon

import (
	"context"
	"net"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/schemas/tga"
)

// peer is who is at the other end of a connection.
type peer struct {
	uid, gid uint32
	role     config.Role
	err      error // why the kernel did not say who it is
}

// name stands in the log for what a peer has done: a vote, a resolution.
func (p peer) name() string { return config.PeerName(p.uid) }

// barred says why a peer is let do nothing at all, nil where it may do something.
func (p peer) barred() error {
	if len(p.role.Verbs) == 0 {
		return tga.Errorf(tga.PermissionDenied, "%s has no verb on this socket", p.name())
	}
	return nil
}

// namespace is that of what the peer asks for. A role that is not bound to one names any.
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

// sees reports whether a trace of a namespace is the peer's to reach. A trace whose
// request is erased has no namespace, and is nobody's but theirs who may name any.
func (p peer) sees(namespace string) bool {
	return p.role.Namespace == config.AnyNamespace || namespace != "" && namespace == p.role.Namespace
}

// all reports whether the peer sees every namespace.
func (p peer) all() bool { return p.role.Namespace == config.AnyNamespace }

// ownLock returns the path of a lock file that is there and is the peer's own, else "". A
// file of somebody else's says nothing of the peer, and one that this process does not find
// may be one that it cannot see: in both cases nothing is known, which is not "free".
func (p peer) ownLock(path string) string {
	if uid, ok := filelock.Owner(path); path == "" || !ok || uid != p.uid {
		return ""
	}
	return path
}

type connKey struct{}

// identify is http.Server.ConnContext: it hands on what [gatekeeper] found out when the
// connection was made. Credentials say who connected; a descriptor handed on later keeps them.
func identify(ctx context.Context, c net.Conn) context.Context {
	if k, ok := c.(*keptConn); ok {
		return context.WithValue(ctx, connKey{}, &k.connection)
	}
	return ctx
}

// connection is what is known of the connection that a request came on.
type connection struct {
	peer    peer
	refusal error // why the connection gets no answer but this one
}

func connectionOf(ctx context.Context) *connection {
	c, ok := ctx.Value(connKey{}).(*connection)
	if !ok {
		// Not served by this package's listener: nobody is known.
		return &connection{refusal: tga.Errorf(tga.PermissionDenied, "the connection has no peer")}
	}
	return c
}
