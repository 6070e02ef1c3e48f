package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/internal/optional"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// options returns what a state is opened with. This program drops no boundary, because the
// agent's own program decides how many are kept. What it knows about tools is from --config.
func (v *stateVerbs) options() (workstate.Options, error) {
	o := workstate.Options{Ring: math.MaxInt}
	if v.file == "" {
		return o, nil
	}
	c, err := assemble.Load(v.file)
	if err != nil {
		return o, err
	}
	o.External = func(server, tool string) workstate.External {
		p, _ := c.Policy(server, tool)
		e := workstate.External{None: p.Class == tga.ClassRead}
		if t := c.ToolOf(server, tool); t != nil && t.Inverse != nil {
			e.Compensation = cmp.Or(t.Inverse.Server, server) + " " + t.Inverse.Tool
		}
		return e
	}
	return o, nil
}

// resources are directories and databases that were opened by their places.
type resources struct {
	registry  *workstate.Registry
	resources map[string]io.Closer
}

func (r *resources) names() []string { return slices.Sorted(maps.Keys(r.resources)) }

func (r *resources) close() error {
	var errs []error
	for _, name := range r.names() {
		errs = append(errs, r.resources[name].Close())
	}
	return errors.Join(errs...)
}

// openPlaces opens the resources at those places that want accepts.
func openPlaces(ctx context.Context, places map[string]workstate.Place, want func(workstate.Place) bool) (*resources, error) {
	r := &resources{&workstate.Registry{}, map[string]io.Closer{}}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		p := places[name]
		if !want(p) {
			continue
		}
		if err := r.open(ctx, name, p); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

func (r *resources) open(ctx context.Context, name string, p workstate.Place) (err error) {
	var opened io.Closer
	switch p.Kind {
	case workstate.PlaceDirectory:
		opened, err = hostdir.Open(ctx, p.Path, p.Aside, hostdir.Options{Exclude: p.Exclude})
	case workstate.PlaceSQLite:
		opened, err = optional.Database(ctx, p.Path, p.Aside)
	default:
		return tga.Errorf(tga.PermissionDenied, "only the state's own program can open the resource %s: roll back or fork from there", name)
	}
	if err != nil {
		return tga.Errorf(cmp.Or(tga.CodeOf(err), tga.ValidationError), "resource %s: %w", name, err)
	}
	r.resources[name] = opened
	return r.registry.AddAs(name, opened)
}

// allThere refuses a place at which nothing exists, unless --at names it: the user must say
// whether the resource was moved, or is to be made again.
func allThere(places, named map[string]workstate.Place) error {
	for _, name := range slices.Sorted(maps.Keys(places)) {
		p := places[name]
		if _, ok := named[name]; ok || p.Kind == "" {
			continue
		}
		if _, err := os.Lstat(p.Path); err != nil {
			return tga.Errorf(tga.ValidationError, "resource %s: %w: if it was moved, say where with --at %s=PATH,%s; to have it made again, with --at %s=%s,%s",
				name, err, p.Kind, p.Aside, p.Kind, p.Path, p.Aside)
		}
	}
	return nil
}

// parseAt reads --at NAME=PATH[,ASIDE] into places. NAME is a resource's name, the last
// element of its name, or its kind, and must match exactly one resource. The default of
// ASIDE is PATH.tgad.
func parseAt(list []string, places map[string]workstate.Place) (map[string]workstate.Place, error) {
	out := map[string]workstate.Place{}
	for _, text := range list {
		key, path, ok := strings.Cut(text, "=")
		if !ok || path == "" {
			return nil, cli.Usagef("--at %q: want NAME=PATH or NAME=PATH,ASIDE", text)
		}
		var found []string
		for name, p := range places {
			if p.Kind != "" && (name == key || p.Kind == key || strings.HasSuffix(name, "/"+key)) {
				found = append(found, name)
			}
		}
		if len(found) != 1 || out[found[0]].Kind != "" {
			return nil, cli.Usagef("--at %q: %d resources of the state are meant by %q, or it is given twice", text, len(found), key)
		}
		path, aside, _ := strings.Cut(path, ",")
		p := places[found[0]]
		var err error
		if p.Path, err = filepath.Abs(path); err == nil {
			p.Aside, err = filepath.Abs(cmp.Or(aside, path+".tgad"))
		}
		if err != nil {
			return nil, err
		}
		out[found[0]] = p
	}
	return out, nil
}

// openState is a state that was opened to be changed.
type openState struct {
	*workstate.State
	first     *workstate.State // of its family; holds the lease
	db        *engine.DB
	ring      *keyring.Ring // nil: none
	resources []*resources
}

// open opens a state with the resources at its places; at gives the new places of resources
// that were moved. As in the agent's own program, opening first ends the transactions that a
// crash left open.
func (v *stateVerbs) open(ctx context.Context, name string, at []string) (_ *openState, err error) {
	id, number, err := cli.ParseState(name)
	if err != nil {
		return nil, err
	}
	if err := v.check(); err != nil {
		return nil, err
	}
	o, err := v.options()
	if err != nil {
		return nil, err
	}
	s := &openState{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := v.openStore(s); err != nil {
		return nil, err
	}
	seen, err := workstate.Inspect(ctx, s.db, id, number, o)
	if err != nil {
		return nil, err
	}
	places := seen.Places()
	moved, err := parseAt(at, places)
	if err != nil {
		return nil, err
	}
	if err := allThere(places, moved); err != nil {
		return nil, err
	}
	maps.Copy(places, moved)
	own, err := openPlaces(ctx, places, func(workstate.Place) bool { return true })
	if err != nil {
		return nil, err
	}
	s.resources = append(s.resources, own)
	if number == 0 {
		s.State, err = workstate.Open(ctx, s.db, id, workstate.NewSession(), own.registry, o)
		s.first = s.State
		return s, err
	}
	if err := s.openFirst(ctx, id, o); err != nil {
		return nil, err
	}
	s.State, err = s.first.OpenFork(ctx, number, workstate.NewSession(), own.registry, o)
	return s, err
}

// openStore opens the store as the configuration says, with its key ring.
func (v *stateVerbs) openStore(s *openState) error {
	o := engine.Options{}
	if v.file != "" {
		c, err := assemble.Load(v.file)
		if err != nil {
			return err
		}
		o = assemble.StoreOptions(c)
		if s.ring, err = assemble.Keyring(c, v.dir); err != nil {
			return err
		}
		if s.ring != nil {
			o.Keyring = s.ring
		}
	}
	var err error
	s.db, err = engine.Open(v.dir, o)
	return err
}

// openFirst opens the first state of a fork's family, because that state holds the family's
// lease. Its outside resources are opened only if a crash left a transaction of it open.
func (s *openState) openFirst(ctx context.Context, id tga.ID, o workstate.Options) error {
	seen, err := workstate.Inspect(ctx, s.db, id, 0, o)
	if err != nil {
		return err
	}
	open := slices.ContainsFunc(seen.List(), func(c workstate.Checkpoint) bool { return c.Open })
	r, err := openPlaces(ctx, seen.Places(), func(workstate.Place) bool { return open })
	if err != nil {
		return err
	}
	s.resources = append(s.resources, r)
	s.first, err = workstate.Open(ctx, s.db, id, workstate.NewSession(), r.registry, o)
	return err
}

func (s *openState) close() error {
	if s.first != nil {
		s.first.Close()
	}
	var errs []error
	for _, r := range s.resources {
		errs = append(errs, r.close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.ring != nil {
		errs = append(errs, s.ring.Close())
	}
	return errors.Join(errs...)
}
