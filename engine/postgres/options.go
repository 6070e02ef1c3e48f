package postgres

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/tgad/tgad/wal/chain"
)

// Options say how a store is opened. The zero value accepts the durability of a single server.
type Options struct {
	// Shard is the number of the store within its database.
	Shard int32
	// Name names this process for people; "" is host and process id.
	Name string
	// Lease is for how long a process that no longer answers keeps its traces. Zero is 10 s.
	Lease time.Duration
	// RequireSync refuses a server that acknowledges commits before a standby has them.
	RequireSync bool
	// Patience is how long the store tries to reach a server before it returns
	// STORE_UNAVAILABLE. Zero is 30 s. A failover should take less time than this.
	Patience time.Duration
	// Password, if set, is called before each connection is made, because a file with the password
	// may change. If it is nil, the password is from the DSN or PostgreSQL's environment variables.
	Password func() (string, error)
	// Keyring has the keys that seal artifacts, documents and attachments; nil seals nothing. All processes of a store need the same ring.
	Keyring chain.Keyring
	// Committers is how many transactions with appends are under way at once. Zero is 4.
	Committers int
	// Conns is the largest number of connections, at least 3. Zero is 16 plus one for each committer.
	Conns int
	Clock func() time.Time
	// MaxSkew is how far Clock may be from the clock of the database server: beyond it no lease is granted, and no second send
	// is licensed. Zero is 30 s; a negative one is for a Clock that tells another time on purpose.
	MaxSkew time.Duration
	Logger  *slog.Logger
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
	if o.MaxSkew == 0 {
		o.MaxSkew = 30 * time.Second // two processes are then as far apart as a window's margin is by default
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// margin is by how much earlier than the database a process counts its lease as over, because
// the two clocks do not run equally fast.
func (o *Options) margin() time.Duration { return o.Lease / 5 }

// until returns the time up to which this process relies on a renewal that it requested at asked.
// The database counts from a later moment, but its clock may be faster.
func (o *Options) until(asked time.Time) time.Time { return asked.Add(o.Lease - o.margin()) }
