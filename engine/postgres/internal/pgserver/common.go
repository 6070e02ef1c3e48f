package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Common is a server that tests of a package share. A test must not harm the server, and uses a shard of its own.
type Common struct {
	Prepare func(*Server) error // once, when it has started

	once   sync.Once
	server *Server
	err    error
}

// Server returns the server, and starts it at the first call.
func (c *Common) Server() (*Server, error) {
	c.once.Do(func() {
		var dir string
		if dir, c.err = Place(); c.err != nil {
			return
		}
		if c.server, c.err = New(filepath.Join(dir, "s")); c.err == nil {
			c.err = c.Prepare(c.server)
		}
	})
	return c.server, c.err
}

// Main runs the tests of a package, removes every server and returns the exit code.
func (c *Common) Main(m interface{ Run() int }) (code int) {
	code = m.Run()
	c.once.Do(func() {}) // none is started any more
	var errs []error
	if c.server != nil {
		errs = append(errs, c.server.Remove())
	}
	for _, err := range append(errs, Sweep()) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}
