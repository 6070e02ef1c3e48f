package daemon

import (
	"net"
	"sync"

	"github.com/tgad/tgad/internal/config"
)

// gatekeeper is the listener that the daemon serves on. It asks the kernel who made a
// connection before anything is read from it, and limits connections in total and per uid.
// It refuses a peer without any verb, so that such a peer takes no place from another.
//
// The answer to the first request on a refused connection says why it is refused. Such a
// connection takes memory too. So at most spareConnections are kept for that answer at a time,
// and spareOfUID of one uid. The others are closed without an answer.
type gatekeeper struct {
	net.Listener
	roleOf  func(uid, gid uint32) config.Role
	refused func() // called for each connection that is refused

	mu              sync.Mutex
	most, mostOfUID int
	served          crowd // connections whose requests are answered
	told            crowd // refused connections that wait to be told why
}

// door makes the gatekeeper of a listener.
func (d *Daemon) door(l net.Listener) *gatekeeper {
	limits := d.conf().Limits
	d.gate = &gatekeeper{
		Listener: l, most: limits.Connections, mostOfUID: limits.UIDConnections,
		roleOf:  d.roleOf,
		refused: func() { d.turnedAway.Add(1) },
	}
	return d.gate
}

// bound changes how many connections there may be. It closes none of those that there are.
func (g *gatekeeper) bound(most, mostOfUID int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most, g.mostOfUID = most, mostOfUID
}

const (
	spareConnections = 64
	spareOfUID       = 8
)

// crowd counts connections, in all and by uid.
type crowd struct {
	total int
	ofUID map[uint32]int
}

func (c *crowd) add(uid uint32) {
	if c.ofUID == nil {
		c.ofUID = map[uint32]int{}
	}
	c.total++
	c.ofUID[uid]++
}

func (c *crowd) remove(uid uint32) {
	c.total--
	if c.ofUID[uid]--; c.ofUID[uid] == 0 {
		delete(c.ofUID, uid)
	}
}

func (g *gatekeeper) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if k := g.admit(c); k != nil {
			return k, nil
		}
		_ = c.Close() // nobody needs the error
	}
}

// admit asks the kernel who connected, and counts the connection as served, or as refused and
// told why. It returns nil if there is no place for either.
func (g *gatekeeper) admit(c net.Conn) *keptConn {
	k := &keptConn{Conn: c}
	p := &k.connection.peer
	if p.uid, p.gid, p.err = credentials(c); p.err == nil {
		p.role = g.roleOf(p.uid, p.gid)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	in := &g.served
	switch {
	case p.err != nil:
		k.connection.refusal = p.err
	case p.barred() != nil:
		k.connection.refusal = p.barred()
	case g.served.ofUID[p.uid] >= g.mostOfUID:
		k.connection.refusal = tooMany("%s has %d connections already", p.name(), g.mostOfUID)
	case g.served.total >= g.most:
		k.connection.refusal = tooMany("there are %d connections already", g.most)
	}
	if k.connection.refusal != nil {
		g.refused()
		if in = &g.told; in.total >= spareConnections || in.ofUID[p.uid] >= spareOfUID {
			return nil
		}
	}
	in.add(p.uid)
	k.leave = sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		in.remove(p.uid)
	})
	return k
}

// keptConn gives its place back when it is closed.
type keptConn struct {
	net.Conn
	connection connection
	leave      func()
}

// NetConn is the connection itself: [listen.HTTP] needs the number of its file.
func (c *keptConn) NetConn() net.Conn { return c.Conn }

func (c *keptConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
