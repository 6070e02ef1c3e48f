package postgres

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/tgad/tgad/wal/chain"
)

// Options say how a store is opened. The zero value asks for what a single server can give.
type Options struct {
	// Shard tells the stores of one database from each other.
	Shard int32
	// Name is of this process, for people; "" is host and process id.
	Name string
	// Lease is for how long a process that stops answering keeps its traces; 10 s.
	Lease time.Duration
	// RequireSync refuses a server that acknowledges commits which no standby has.
	RequireSync bool
	// Patience is how long the store looks for a server that answers, before it says
	// STORE_UNAVAILABLE; 30 s. A failover should end within it.
	Patience time.Duration
	// Password, where it is set, is asked before each connection is made: a file that holds it may
	// change. Otherwise the DSN and the environment of PostgreSQL say it.
	Password func() (string, error)
	// Keyring seals what entries carry and what lies beside them; nil does not. All processes of a store have the same ring.
	Keyring chain.Keyring
	// Committers is how many transactions with appends are under way at once; 4.
	Committers int
	// Conns is how many connections there are at most; 16 and one for each committer.
	Conns  int
	Clock  func() time.Time
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.Name = fmt.Sprintf("%s %d", host, os.Getpid())
	}
	if o.Lease <= 0 {
		o.Lease = 10 * time.Second
	}
	if o.Patience <= 0 {
		o.Patience = 30 * time.Second
	}
	if o.Committers <= 0 {
		o.Committers = 4
	}
	if o.Conns <= 0 {
		o.Conns = 16 + o.Committers
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// margin is by how much a process believes in its lease for less time than the database does:
// the two clocks do not run equally fast.
func (o *Options) margin() time.Duration { return o.Lease / 5 }

// until is up to when a renewal that was asked for at a moment holds, as this process sees it:
// the database counts from later, and its clock may be faster.
func (o *Options) until(asked time.Time) time.Time { return asked.Add(o.Lease - o.margin()) }
