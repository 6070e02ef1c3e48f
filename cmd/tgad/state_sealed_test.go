package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// TestEveryVerbOpensASealedState: with the configuration that names the key ring, also where the file says more than that
// to the verb. Without it none shows anything, and none changes anything.
func TestEveryVerbOpensASealedState(t *testing.T) {
	t.Setenv("TGAD_SOCKET", "")
	k := newKeptState(t)
	k.write(k.at("kek"), strings.Repeat("0f", 32))
	k.must(os.Chmod(k.at("kek"), 0o600))
	k.write(k.at("tgad.toml"), "[keyring]\npath = \"ring\"\nkek_file = \"kek\"\n")
	if code, _, errs := says("keyring", "init", k.at("ring"), "--kek-file", k.at("kek")); code != cli.ExitOK {
		t.Fatal(errs)
	}
	conf, err := assemble.Load(k.at("tgad.toml"))
	k.must(err)
	ring, err := assemble.Keyring(conf, k.at("data"))
	k.must(err)
	ctx := context.Background()
	db, err := engine.Open(k.at("data"), engine.Options{FirstSegmentBytes: 64 << 10, MemTableBytes: 1 << 20, Keyring: ring})
	k.must(err)
	d, err := hostdir.Open(ctx, k.at("work"), k.at("snapshots"), hostdir.Options{})
	k.must(err)
	r := &workstate.Registry{}
	k.must(workstate.Add(r, d))
	id, err := tga.ParseID(k.id)
	k.must(err)
	s, err := workstate.Open(ctx, db, id, workstate.NewSession(), r, workstate.Options{})
	k.must(err)
	k.edit(s, k.at("work/file"), "1")
	call := s.List()[0].ID
	s.Close()
	k.must(errors.Join(d.Close(), db.Close(), ring.Close()))

	verbs := [][]string{
		{"state", "show", k.id}, {"state", "show", k.id, call}, {"state", "diff", k.id, call},
		{"state", "rollback", k.id, call, "--plan"}, {"state", "fork", k.id, call, "--at", "directory=" + k.at("twin")},
		{"state", "rollback", k.id, call, "--yes"},
	}
	for _, args := range verbs {
		if said := k.tgad(cli.ExitError, args...); !strings.Contains(said, "STORE_UNAVAILABLE") {
			t.Errorf("%q without the ring: %s", args, said)
		}
	}
	k.holds(k.at("work/file"), "1")
	for _, args := range verbs {
		k.tgad(cli.ExitOK, append(args, "--config", k.at("tgad.toml"))...)
	}
	k.holds(k.at("twin/file"), "0")
	k.holds(k.at("work/file"), "0")
}
