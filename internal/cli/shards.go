package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/config"
)

// ShardVerbs are the functions behind the verbs for a fleet with stores in several databases.
type ShardVerbs struct {
	Add   func(ctx context.Context, a AddingShard) (Fleet, error)
	List  func(ctx context.Context, url string) (Fleet, error)
	Place func(ctx context.Context, url string, p Placing) (Fleet, error)
	Move  func(ctx context.Context, m Moving) (MovedStore, error)
}

// AddingShard says which database becomes a shard.
type AddingShard struct{ URL, Name, Reach, Of string }

// Placing says where the store of a namespace is to be.
type Placing struct {
	Namespace, Shard string
	Pinned           bool
}

// Moving says which store moves where.
type Moving struct {
	Namespace string
	Store     int32
	ByNumber  bool
	From, To  string
	Drain     time.Duration
	Pinned    bool
	Stop      bool
	Lost      bool // the shard To will never answer again
	Progress  func(step string)
}

// Fleet is what one shard knows about its fleet.
type Fleet struct {
	ID         string           `json:"fleet"`
	Asked      string           `json:"asked"` // name of the shard that says so
	Shards     []FleetShard     `json:"shards"`
	Placements []FleetPlacement `json:"stores"`
}

// FleetShard is a database.
type FleetShard struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// FleetPlacement is where a store is.
type FleetPlacement struct {
	Store      int32    `json:"store"`
	Shard      string   `json:"shard"`
	Epoch      int64    `json:"epoch"`
	State      string   `json:"state"` // at the shard that was asked
	Pinned     bool     `json:"pinned,omitempty"`
	Rest       bool     `json:"rest,omitempty"` // it has each namespace that has no store of its own
	Namespaces []string `json:"namespaces,omitempty"`
}

// MovedStore says what a move did.
type MovedStore struct {
	Store   int32         `json:"store"`
	From    string        `json:"from"`
	To      string        `json:"to"`
	Epoch   int64         `json:"epoch"`
	Rows    int64         `json:"rows"`       // that were compared
	Stopped time.Duration `json:"stopped_ns"` // for how long no shard had the store
}

func checkURLs(urls ...string) error {
	for _, u := range urls {
		if err := config.CheckStoreURL(u); err != nil {
			return Usage(err)
		}
	}
	return nil
}

func (v ShardVerbs) add(s *Streams) *cobra.Command {
	var a AddingShard
	c := &cobra.Command{
		Use:   "shard URL --name NAME [--of URL]",
		Short: "Make a database a shard of a fleet",
		Long: `shard makes a database that pg migrate has prepared a shard of a fleet of several databases, and tells the
other shards of it. Without --of it is the first one: the store that it has serves each namespace that gets
no store of its own. Run it again to change the URL by which daemons reach the shard. URL has no password.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			a.URL = args[0]
			a.Reach = cmp.Or(a.Reach, a.URL)
			if a.Name == "" {
				return Usagef("--name is required: the name of the shard in its fleet")
			}
			urls := []string{a.URL, a.Reach}
			if a.Of != "" {
				urls = append(urls, a.Of)
			}
			if err := checkURLs(urls...); err != nil {
				return err
			}
			f, err := v.Add(c.Context(), a)
			if err != nil {
				return err
			}
			return s.fleet(f)
		},
	}
	c.Flags().StringVar(&a.Name, "name", "", "the `name` of the shard in its fleet")
	c.Flags().StringVar(&a.Reach, "reach", "", "the `URL` by which daemons reach it, if that is another; each adds its own user")
	c.Flags().StringVar(&a.Of, "of", "", "the `URL` of a shard that the fleet has already")
	return c
}

func (v ShardVerbs) list(s *Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "shards URL",
		Short: "List the shards of a fleet, and which stores are where",
		Long:  `shards prints what the shard at URL knows of its fleet. URL has no password.`,
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkURLs(args[0]); err != nil {
				return err
			}
			f, err := v.List(c.Context(), args[0])
			if err != nil {
				return err
			}
			return s.fleet(f)
		},
	}
}

func (v ShardVerbs) place(s *Streams) *cobra.Command {
	var p Placing
	c := &cobra.Command{
		Use:   "place NAMESPACE URL --shard NAME [--pin]",
		Short: "Give a namespace a store of its own on a shard",
		Long: `place gives a namespace a store of its own, before its first call. URL is of the shard that has the store of
the namespaces without one, and has no password. With --pin the store is moved only by who says so.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			p.Namespace = args[0]
			if p.Shard == "" {
				return Usagef("--shard is required: the name of the shard that gets the store")
			}
			if err := checkURLs(args[1]); err != nil {
				return err
			}
			f, err := v.Place(c.Context(), args[1], p)
			if err != nil {
				return err
			}
			return s.fleet(f)
		},
	}
	c.Flags().StringVar(&p.Shard, "shard", "", "the `name` of the shard")
	c.Flags().BoolVar(&p.Pinned, "pin", false, "the store is to stay there: pg move needs --pinned")
	return c
}

func (v ShardVerbs) move(s *Streams) *cobra.Command {
	m := Moving{Store: -1}
	c := &cobra.Command{
		Use:   "move {NAMESPACE | --store N} --from URL --to URL",
		Short: "Move the store of a namespace to another shard",
		Long: `move takes the store of a namespace from one shard to another. It copies what there is while the store is
served, lets calls under way end, fences the store where it was, copies the rest, compares each row, waits
until no process can send under an old lease, and hands the store over. Calls of that store wait
meanwhile; those of others go on. Run it again after it was broken off: it goes on where it stood. With --stop the move is
given up, and the store stays where it was. URL has no password.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			m.ByNumber = m.Store >= 0
			if m.ByNumber == (len(args) == 1) {
				return Usagef("name a namespace, or a store with --store")
			}
			if len(args) == 1 {
				m.Namespace = args[0]
			}
			urls := []string{m.From, m.To}
			switch {
			case m.Lost && (!m.Stop || m.To != ""):
				return Usagef("--lost goes with --stop, and takes the place of --to")
			case m.Lost:
				urls = urls[:1]
			case m.From == "" || m.To == "":
				return Usagef("--from and --to are required: the URLs of the two shards")
			}
			if err := checkURLs(urls...); err != nil {
				return err
			}
			m.Progress = func(step string) {
				if !s.JSON && (s.Progress || isTerminal(s.Err)) {
					// A move that is broken off has to be taken up again, so it goes on without a reader. What it did is on stdout.
					_, _ = fmt.Fprintln(s.Err, Clean(step))
				}
			}
			done, err := v.Move(c.Context(), m)
			switch {
			case err != nil:
				return err
			case s.JSON:
				return s.Line(done)
			case m.Stop:
				s.Printf("the move is given up: store %d is served from shard %s\n", done.Store, done.From)
				return nil
			}
			s.Printf("store %d is on shard %s, epoch %d: %d rows, the same on both\n", done.Store, done.To, done.Epoch, done.Rows)
			if done.Stopped > 0 {
				s.Printf("its calls waited for %s\n", done.Stopped.Round(time.Millisecond))
			}
			return nil
		},
	}
	c.Flags().StringVar(&m.From, "from", "", "the `URL` of the shard that has the store")
	c.Flags().StringVar(&m.To, "to", "", "the `URL` of the shard that gets it")
	c.Flags().Int32Var(&m.Store, "store", -1, "move the store with this `number`, with all its namespaces")
	c.Flags().DurationVar(&m.Drain, "drain", 10*time.Second, "for how long calls under way may end")
	c.Flags().BoolVar(&m.Pinned, "pinned", false, "move a store that is pinned to its shard")
	c.Flags().BoolVar(&m.Stop, "stop", false, "give up a move that has not come to its end")
	c.Flags().BoolVar(&m.Lost, "lost", false, "with --stop: the shard that was to get the store is lost for good, and has not taken it")
	return c
}

func (s *Streams) fleet(f Fleet) error {
	if s.JSON {
		return s.Line(f)
	}
	s.Printf("fleet %s, as shard %s knows it\n", f.ID, f.Asked)
	for _, x := range f.Shards {
		s.Printf("shard %s  %s\n", x.Name, x.URL)
	}
	for _, p := range f.Placements {
		s.Printf("store %d  on %s, epoch %d, %s", p.Store, p.Shard, p.Epoch, p.State)
		if p.Pinned {
			s.Printf(", pinned")
		}
		if p.Rest {
			s.Printf(", of each namespace without one of its own")
		}
		for _, n := range p.Namespaces {
			s.Printf("  %s", n)
		}
		s.Printf("\n")
	}
	return nil
}
