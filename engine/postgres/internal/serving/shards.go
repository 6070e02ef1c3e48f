package serving

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/cli"
)

// shardVerbs are the verbs for a fleet of several databases.
var shardVerbs = cli.ShardVerbs{
	Add: func(ctx context.Context, a cli.AddingShard) (cli.Fleet, error) {
		r, err := postgres.AddShard(ctx, silent, postgres.AddingShard{DSN: a.URL, Name: a.Name, URL: a.Reach, Of: a.Of})
		return fleetOf(r), err
	},
	List: func(ctx context.Context, url string) (cli.Fleet, error) {
		r, err := postgres.ReadRoutes(ctx, url, silent)
		return fleetOf(r), err
	},
	Place: func(ctx context.Context, url string, p cli.Placing) (cli.Fleet, error) {
		r, err := postgres.Place(ctx, url, silent, postgres.Placing{Namespace: p.Namespace, Shard: p.Shard, Pinned: p.Pinned})
		return fleetOf(r), err
	},
	Move: moveStore,
}

var silent = postgres.Options{Logger: slog.New(slog.DiscardHandler)}

func moveStore(ctx context.Context, m cli.Moving) (cli.MovedStore, error) {
	moving := postgres.Moving{
		Namespace: m.Namespace, ByNumber: m.ByNumber, Store: m.Store, From: m.From, To: m.To, Drain: m.Drain, Pinned: m.Pinned, Lost: m.Lost,
		Step: func(step string) error { m.Progress(step); return nil },
	}
	do := postgres.Move
	if m.Stop {
		do = postgres.StopMoving
	}
	done, err := do(ctx, silent, moving)
	return cli.MovedStore{Store: done.Store, From: done.From, To: done.To, Epoch: done.Epoch, Rows: done.Rows, Stopped: done.Stopped}, err
}

func fleetOf(r *postgres.Routes) (f cli.Fleet) {
	if r == nil {
		return f
	}
	f.ID, f.Asked = r.Fleet.String(), r.Name
	for _, s := range r.Shards {
		f.Shards = append(f.Shards, cli.FleetShard{Name: s.Name, URL: s.URL})
	}
	for _, store := range slices.Sorted(maps.Keys(r.Placements)) {
		p := r.Placements[store]
		x := cli.FleetPlacement{Store: store, Shard: p.Owner, Epoch: p.Epoch, State: p.State, Pinned: p.Pinned, Rest: store == r.Rest}
		for _, n := range slices.Sorted(maps.Keys(r.Namespaces)) {
			if r.Namespaces[n] == store {
				x.Namespaces = append(x.Namespaces, n)
			}
		}
		f.Placements = append(f.Placements, x)
	}
	return f
}
