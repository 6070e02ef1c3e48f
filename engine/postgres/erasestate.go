package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// streams finds the streams that are to be erased: journals of turns, and values kept by executors.
func (e *planner) streams(ctx context.Context) error {
	for _, id := range once(e.what.Turns) {
		open, err := e.s.stored(ctx, chain.AttachStream, keyspace.OpenTurnKey(id))
		if err == nil && open != nil {
			err = tga.Errorf(tga.StateInvalidTransition, "erase turn %s: it has not ended. Let it run, or decide what it waits for (tgad agent decide)", id)
		}
		if err == nil {
			err = e.stream(ctx, "turn "+id.String(), id, &e.done.Turns)
		}
		if err != nil {
			return err
		}
	}
	for _, server := range slices.Compact(slices.Sorted(slices.Values(e.what.Kept))) {
		if err := e.stream(ctx, "what is kept about "+server, keyspace.KeptStream(e.what.Namespace, server), &e.done.Kept); err != nil {
			return err
		}
	}
	return nil
}

// stream finds the keys of a stream that is to be erased, and whether it can be erased now. NOT_FOUND: it has no item.
func (e *planner) stream(ctx context.Context, name string, id tga.ID, count *int) error {
	if err := e.free(name, id); err != nil {
		return err
	}
	keys, err := e.s.ownersKeys(ctx, sealrules.OwnersOf(id))
	if err != nil {
		return err
	}
	items, err := e.s.eachStored(ctx, chain.AttachStream, keyspace.StreamPrefix(id), func(_, stored []byte) error {
		if len(stored) > 0 {
			keys = append(keys, sealrules.KeyOf(stored))
		}
		return nil
	})
	if err != nil {
		return err
	}
	already, err := sealrules.OfStream(name, items, keys)
	if already {
		e.done.Already++
	}
	if already || err != nil {
		return err
	}
	*count++
	e.m.Streams = append(e.m.Streams, id)
	return sealrules.Own(e.s.ringed.ring, keys, &e.m.Keys, &e.done)
}

// free refuses a stream or a state whose lease somebody holds, or may hold.
func (e *planner) free(name string, id tga.ID) error {
	switch e.s.Holder(id) {
	case ledger.HolderAlive:
		return tga.Errorf(tga.StateLockAcquireFailed, "erase %s: another process or call holds its lease", name)
	case ledger.HolderUnknown:
		return tga.Errorf(tga.StoreUnavailable, "erase %s: whether another process holds its lease is not known", name)
	}
	return nil
}

// states finds the states that are to be erased.
func (e *planner) states(ctx context.Context) error {
	names := map[tga.ID]string{}
	for _, a := range e.what.Agents {
		name := "the state of agent " + a.Agent
		if a.Session != "" {
			name += ", session " + a.Session
		}
		names[keyspace.AgentStream(a.Agent, a.Session)] = name
	}
	for _, id := range once(slices.Collect(maps.Keys(names))) {
		if err := e.state(ctx, names[id], id, true); err != nil {
			return err
		}
	}
	for _, id := range once(e.what.States) {
		if err := e.state(ctx, "working state "+id.String(), id, false); err != nil {
			return err
		}
	}
	return nil
}

// state finds the rows and keys of a state that is to be erased, and whether it can be erased now. NOT_FOUND: nothing was ever
// written to it.
func (e *planner) state(ctx context.Context, name string, id tga.ID, scope bool) error {
	if err := e.free(name, id); err != nil {
		return err
	}
	x := erasedState{Stream: id}
	var err error
	if scope {
		if x.Values, err = e.valuesOf(ctx, id); err != nil {
			return err
		}
	}
	keys, err := e.s.ownersKeys(ctx, x.owners())
	if err != nil {
		return err
	}
	sealed, rows := len(keys) > 0, 0
	var head []byte
	for _, part := range x.parts() {
		if _, err := e.s.eachStored(ctx, part.kind, part.prefix, func(key, stored []byte) error {
			if bytes.Equal(key, x.head()) {
				head = stored
				return nil
			}
			if rows++; len(stored) > 0 {
				keys = append(keys, sealrules.KeyOf(stored))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	already, err := sealrules.OfState(name, head, rows, sealed)
	if already {
		e.done.Already++
	}
	if already || err != nil {
		return err
	}
	if len(keys) == 0 { // all that it had was deleted
		keys = append(keys, 0)
	}
	e.done.States++
	e.m.States = append(e.m.States, x)
	return sealrules.Own(e.s.ringed.ring, keys, &e.m.Keys, &e.done)
}

// head is the owner's key of a state's head.
func (x *erasedState) head() []byte { return keyspace.StreamKey(x.Stream, 0) }

// span is the attachments of a kind whose keys have a prefix.
type span struct {
	kind   chain.AttachmentKind
	prefix []byte
}

// parts returns the spans that have the values of a state.
func (x *erasedState) parts() []span {
	list := []span{{chain.AttachBlob, keyspace.NodePrefix(x.Stream)}}
	for _, stream := range append(slices.Clip(x.Values), x.Stream) {
		list = append(list, span{chain.AttachStream, keyspace.StreamPrefix(stream)})
	}
	return list
}

// owners returns the owners under whose keys the values may be sealed.
func (x *erasedState) owners() (all []sealrules.Owner) {
	for _, stream := range append(slices.Clip(x.Values), x.Stream) {
		all = append(all, sealrules.OwnersOf(stream)...)
	}
	return all
}

// valuesOf returns the streams of the keys that the lists of a scope name. It skips a list whose data key was destroyed; a store that
// was restored from before an erasure can have one.
func (e *planner) valuesOf(ctx context.Context, scope tga.ID) (streams []tga.ID, err error) {
	_, err = e.s.eachStored(ctx, chain.AttachStream, keyspace.StreamPrefix(scope), func(key, stored []byte) error {
		var names []string
		_, n, err := keyspace.ParseStream(key)
		if err != nil || n == 0 || len(stored) == 0 {
			return err
		}
		a := chain.Attachment{Kind: chain.AttachStream, Key: key, Value: stored}
		if _, err := e.s.ringed.opened(&a); err != nil || len(a.Value) == 0 {
			return err
		}
		if err := json.Unmarshal(a.Value, &names); err != nil {
			return damaged("erase: the list %x of a state's keys: %v", n, err)
		}
		for _, name := range names {
			streams = append(streams, keyspace.ValueStream(scope, name))
		}
		return nil
	})
	return streams, err
}
