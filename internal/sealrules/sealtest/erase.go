package sealtest

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// ring is a ring, or none as a [chain.Keyring].
func ring(r *chaintest.Ring) chain.Keyring {
	if r == nil {
		return nil
	}
	return r
}

func erasedIsNowhere(w *world) {
	r := new(chaintest.Ring)
	w.open(r)
	var calls []*call
	var ids []tga.ID
	for _, size := range sizes {
		c := w.call("", "", size)
		calls, ids = append(calls, c), append(ids, c.TraceID)
	}
	stays := w.call("", "", 10)
	w.run(append(calls, stays)...)
	w.evidence(calls[0])
	w.evidence(stays)
	if done, want := w.erase(chain.Erasure{Traces: append(ids, ids[0])}), (chain.Erased{Traces: 3, Keys: 3}); !reflect.DeepEqual(done, want) {
		w.Errorf("erased %+v, want %+v", done, want)
	}
	if len(r.Destroyed) != 3 {
		w.Errorf("destroyed %v", r.Destroyed)
	}
	for range 2 {
		w.erased(calls...)
		w.whole(stays)
		w.Check(w.s)
		w.nowhere(Secret)
		w.open(r)
	}
	if done := w.erase(chain.Erasure{Traces: ids}); !reflect.DeepEqual(done, chain.Erased{Already: 3}) {
		w.Errorf("again: %+v", done)
	}
	noted := map[tga.ID]bool{}
	last := w.s.Cursor()
	for l, err := range w.s.Follow(bg, 0) {
		if err != nil {
			w.Fatal(err)
		}
		if l.Notes == 1 && l.Entries == 0 {
			noted[l.TraceID] = true
		}
		if l.Index >= last {
			break
		}
	}
	for _, id := range ids {
		if !noted[id] {
			w.Errorf("the erasure of %s is no leaf of the order", id)
		}
	}
}

func erasedKeyIsNeverFree(w *world) {
	for _, r := range []*chaintest.Ring{nil, {}} {
		w.anew(fmt.Sprintf("sealed %v", r != nil), func(w *world) {
			w.open(ring(r))
			c := w.call("", "", 10)
			w.run(c)
			w.erase(chain.Erasure{Traces: []tga.ID{c.TraceID}})
			for args, code := range map[string]tga.Code{string(c.Proposal.Args): tga.IdempotencyKeyInFlight, `{"amount":13}`: tga.IdempotencyKeyConflict} {
				b := storetest.New(w.T)
				b.Key, b.Proposal.Args = c.Key, []byte(args)
				again := w.minted(&call{Builder: b})
				lease := w.acquire(again.TraceID)
				_, err := w.s.Append(bg, lease, again.begin)
				w.want("the key of an erased call, with "+args, err, code)
				w.s.Release(lease)
			}
			lease := w.acquire(c.TraceID)
			_, err := w.s.Append(bg, lease, c.end)
			if err == nil {
				if tr, lerr := w.s.Load(bg, c.TraceID); lerr != nil || tr.Effect != nil {
					w.Errorf("what was erased comes back: %+v, %v", tr, lerr)
				}
			}
			value := []byte("late: " + Secret)
			_, err = w.s.Append(bg, lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachBlob, Key: keyspace.EvidenceKey(tga.Sum(value), c.TraceID), Value: value}}})
			if r != nil {
				w.want("evidence of an erased trace", err, tga.StateInvalidTransition)
			}
			w.append(lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "tgad", Body: []byte(`{"attempt":1}`)}}})
			w.s.Release(lease)
			if r != nil {
				w.nowhere(Secret)
			}
		})
	}
}

func onlyWhatHasEndedIsErased(w *world) {
	w.open(new(chaintest.Ring))
	timed, held, begun := w.call("", "", 10), w.call("", "", 10), w.call("", "", 10)
	w.run(timed, held)
	lease := w.acquire(begun.TraceID)
	w.append(lease, begun.begin)
	w.s.Release(lease)
	holds := w.acquire(held.TraceID)
	due := chain.Attachment{Kind: chain.AttachTimer, Key: keyspace.TimerKey(1, timed.TraceID), Value: []byte("x")}
	lease = w.acquire(timed.TraceID)
	w.append(lease, chain.Batch{Attachments: []chain.Attachment{due}})
	w.s.Release(lease)
	of := func(calls ...*call) (ids []tga.ID) {
		for _, c := range calls {
			ids = append(ids, c.TraceID)
		}
		return ids
	}
	for name, c := range map[string]struct {
		what chain.Erasure
		code tga.Code
	}{
		"one that is open":        {chain.Erasure{Traces: of(begun), Who: "w", Reason: "r"}, tga.StateInvalidTransition},
		"with one that is open":   {chain.Erasure{Traces: of(timed, begun), Who: "w", Reason: "r"}, tga.StateInvalidTransition},
		"one with a timer":        {chain.Erasure{Traces: of(timed), Who: "w", Reason: "r"}, tga.StateInvalidTransition},
		"one that is held":        {chain.Erasure{Traces: of(held), Who: "w", Reason: "r"}, tga.StateLockAcquireFailed},
		"one that is not there":   {chain.Erasure{Traces: []tga.ID{storetest.NewID()}, Who: "w", Reason: "r"}, tga.NotFound},
		"a turn that is not":      {chain.Erasure{Turns: []tga.ID{storetest.NewID()}, Who: "w", Reason: "r"}, tga.NotFound},
		"a state that is not":     {chain.Erasure{States: []tga.ID{storetest.NewID()}, Who: "w", Reason: "r"}, tga.NotFound},
		"an agent that is not":    {chain.Erasure{Agents: []chain.AgentState{{Agent: "nobody"}}, Who: "w", Reason: "r"}, tga.NotFound},
		"nothing":                 {chain.Erasure{Who: "w", Reason: "r"}, tga.ValidationError},
		"for no reason":           {chain.Erasure{Traces: of(timed), Who: "w"}, tga.ValidationError},
		"for a long reason":       {chain.Erasure{Traces: of(timed), Who: "w", Reason: strings.Repeat("é", 501)}, tga.ValidationError},
		"too many":                {chain.Erasure{Traces: make([]tga.ID, chain.MaxErased+1), Who: "w", Reason: "r"}, tga.LimitExceeded},
		"a subject and one trace": {chain.Erasure{Traces: of(timed), Subject: "s", Who: "w", Reason: "r"}, tga.ValidationError},
		"a part of a subject":     {chain.Erasure{Subject: "s", Leave: true, Who: "w", Reason: "r"}, tga.ValidationError},
	} {
		_, err := w.s.Erase(bg, c.what)
		w.want(name, err, c.code)
	}
	w.whole(timed, held)
	if done := w.erase(chain.Erasure{Traces: of(held, begun, timed), Leave: true}); !reflect.DeepEqual(done, chain.Erased{}) {
		w.Errorf("what is to be left: %+v", done)
	}
	due.Value = nil
	lease = w.acquire(timed.TraceID)
	w.append(lease, chain.Batch{Attachments: []chain.Attachment{due}})
	w.s.Release(lease)
	w.s.Release(holds)
	w.erase(chain.Erasure{Traces: of(timed, held)})
	w.erased(timed, held)
	lease = w.acquire(held.TraceID)
	_, err := w.s.WriteCheckpoint(bg, lease) // its plan is erased, and a checkpoint names it
	w.want("checkpoint of an erased trace", err, tga.StateInvalidTransition)
	w.s.Release(lease)
}

func erasedSubject(w *world) {
	for _, c := range []struct {
		name string
		ring *chaintest.Ring
		keys int
	}{{"a key of the subject", &chaintest.Ring{BySubject: true}, 1}, {"keys of traces", &chaintest.Ring{}, 4}, {"no ring", nil, 0}} {
		w.anew(c.name, func(w *world) {
			w.open(ring(c.ring))
			alice := []*call{w.call("", "alice", 100), w.call("default", "alice", 100), w.call("", "alice", 100)}
			others := []*call{w.call("", "bob", 100), w.call("tenant", "alice", 100), w.call("", "", 100)}
			w.run(append(alice, others...)...)
			begun := w.call("", "alice", 10)
			lease := w.acquire(begun.TraceID)
			w.append(lease, begun.begin)
			_, err := w.s.Erase(bg, chain.Erasure{Subject: "alice", Who: "w", Reason: "r"})
			w.want("with a call under way", err, tga.StateInvalidTransition)
			w.append(lease, begun.end)
			w.s.Release(lease)
			alice = append(alice, begun)
			if done := w.erase(chain.Erasure{Subject: "alice"}); done.Traces != 4 || done.Keys != c.keys || done.Shared != 0 || (done.Unsealed == 4) != (c.ring == nil) {
				w.Errorf("erased %+v", done)
			}
			w.erased(alice...)
			w.whole(others...)
			next := w.call("", "alice", 10)
			w.run(next)
			w.whole(next)
			if done := w.erase(chain.Erasure{Subject: "nobody"}); !reflect.DeepEqual(done, chain.Erased{}) {
				w.Errorf("of nobody %+v are erased", done)
			}
		})
	}
}

func traceOfASubject(w *world) {
	r := &chaintest.Ring{BySubject: true}
	w.open(r)
	one, other := w.call("", "alice", 10), w.call("", "alice", 10)
	w.run(one, other)
	if done := w.erase(chain.Erasure{Traces: []tga.ID{one.TraceID}}); !reflect.DeepEqual(done, chain.Erased{Traces: 1, Shared: 1}) || len(r.Destroyed) > 0 {
		w.Errorf("erased %+v, destroyed %v", done, r.Destroyed)
	}
	w.erased(one)
	w.whole(other)
}

// noCallIsLost: while a subject is erased its calls go on. Each call is erased whole, or refused the erasure, or can be read.
func noCallIsLost(w *world) {
	r := &chaintest.Ring{BySubject: true}
	w.open(r)
	const calls = 40
	var all []*call
	for range calls {
		all = append(all, w.call("", "alice", 10))
	}
	var over sync.WaitGroup
	over.Go(func() {
		for _, c := range all {
			lease, err := w.s.Acquire(bg, c.TraceID)
			for _, b := range []chain.Batch{c.begin, c.end} {
				if err == nil {
					_, err = w.s.Append(bg, lease, b)
				}
			}
			if err != nil {
				w.Errorf("a call: %v", err)
			}
			w.s.Release(lease)
		}
	})
	erasures := 0
	for range 20 {
		_, err := w.s.Erase(bg, chain.Erasure{Subject: "alice", Who: "operator", Reason: "the customer asked for it"})
		switch tga.CodeOf(err) {
		case "":
			erasures++
		case tga.StateInvalidTransition, tga.StateLockAcquireFailed:
		default:
			w.Errorf("erase: %v", err)
		}
	}
	over.Wait()
	gone := 0
	for _, c := range all {
		tr, err := w.s.Load(bg, c.TraceID)
		switch {
		case err != nil:
			w.Errorf("trace %s: %v", c.TraceID, err)
		case tr.Effect == nil:
			gone++
			w.erased(c)
		default:
			w.whole(c)
		}
	}
	w.Logf("%d erasures, %d of %d calls erased", erasures, gone, calls)
	w.erase(chain.Erasure{Subject: "alice"})
	w.erased(all...)
	w.nowhere(Secret)
}

func erasedStream(w *world) {
	r := new(chaintest.Ring)
	w.open(r)
	one, other, family := storetest.NewID(), storetest.NewID(), storetest.NewID()
	w.lay(one, family)
	w.lay(other, storetest.NewID())
	keys := len(r.Destroyed)
	if done := w.erase(chain.Erasure{Turns: []tga.ID{one}}); !reflect.DeepEqual(done, chain.Erased{Turns: 1, Keys: 1}) || len(r.Destroyed) != keys+1 {
		w.Errorf("erased %+v, destroyed %v", done, r.Destroyed)
	}
	for range 2 {
		first, err := w.s.Attachment(bg, chain.AttachStream, keyspace.StreamKey(one, 1))
		if err != nil || first == nil || len(first) > 0 {
			w.Errorf("the first item is %q, %v", first, err)
		}
		if second, err := w.s.Attachment(bg, chain.AttachStream, keyspace.StreamKey(one, 2)); err != nil || second != nil {
			w.Errorf("the second item is %q, %v", second, err)
		}
		w.laid(other, family, Secret)
		w.open(r)
	}
	if done := w.erase(chain.Erasure{Turns: []tga.ID{one}}); !reflect.DeepEqual(done, chain.Erased{Already: 1}) {
		w.Errorf("again: %+v", done)
	}
	// What is written to it later has another key.
	lease := w.acquire(one)
	w.append(lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StreamKey(one, 3), Value: []byte("later " + Secret)}}})
	w.s.Release(lease)
	if later, err := w.s.Attachment(bg, chain.AttachStream, keyspace.StreamKey(one, 3)); err != nil || !bytes.Contains(later, []byte(Secret)) {
		w.Errorf("what came later: %q, %v", later, err)
	}
	w.nowhere(Secret)
}

// destroyedKeyOfAStream: a value whose key was destroyed without the store, as in one that was put back to before an erasure, is
// not there, and what is written later has another key.
func destroyedKeyOfAStream(w *world) {
	r := new(chaintest.Ring)
	w.open(r)
	stream, family := storetest.NewID(), storetest.NewID()
	w.lay(stream, family)
	for n := range chain.KeyID(2) {
		if err := r.Destroy(n + 1); err != nil {
			w.Fatal(err)
		}
	}
	w.open(r)
	first, err := w.s.Attachment(bg, chain.AttachStream, keyspace.StreamKey(stream, 1))
	if err != nil || first == nil || len(first) > 0 {
		w.Errorf("an item whose key was destroyed: %q, %v", first, err)
	}
	if value, err := w.s.Attachment(bg, chain.AttachBlob, nodeKey(family)); err != nil || value != nil {
		w.Errorf("a node whose key was destroyed: %q, %v", value, err)
	}
	w.lay(stream, family)
	w.laid(stream, family, Secret)
	w.nowhere(Secret)
}

func erasedState(w *world) {
	r := new(chaintest.Ring)
	w.open(r)
	stream, one, other := storetest.NewID(), storetest.NewID(), storetest.NewID()
	w.lay(stream, one)
	w.lay(storetest.NewID(), other)
	scope := keyspace.AgentStream("helper", "s")
	value := keyspace.ValueStream(scope, "name")
	lease := w.acquire(scope)
	w.append(lease, chain.Batch{Attachments: []chain.Attachment{
		{Kind: chain.AttachStream, Key: keyspace.StreamKey(scope, 0), Value: []byte("head"), Owner: scope},
		{Kind: chain.AttachStream, Key: keyspace.StreamKey(scope, keyspace.ListItem("name")), Value: []byte(`["name"]`), Owner: scope},
		{Kind: chain.AttachStream, Key: keyspace.StreamKey(value, 1), Value: []byte("value " + Secret), Owner: scope},
	}})
	w.s.Release(lease)
	what := chain.Erasure{Agents: []chain.AgentState{{Agent: "helper", Session: "s"}}, States: []tga.ID{one}}
	if done := w.erase(what); !reflect.DeepEqual(done, chain.Erased{States: 2, Keys: 2}) || len(r.Destroyed) != 2 {
		w.Errorf("erased %+v, destroyed %v", done, r.Destroyed)
	}
	for range 2 {
		for _, id := range []tga.ID{one, scope} {
			head, err := w.s.Attachment(bg, chain.AttachStream, keyspace.StreamKey(id, 0))
			if was, rerr := chain.ReadStateErasure(head); err != nil || rerr != nil || was == nil || was.Who != "operator" || was.Reason != "the customer asked for it" {
				w.Errorf("head %q, %v, %v", head, err, rerr)
			}
		}
		for _, stream := range []tga.ID{one, scope, value} {
			for a, err := range w.s.Attachments(bg, chain.AttachStream, keyspace.StreamPrefix(stream)) {
				if _, n, perr := keyspace.ParseStream(a.Key); err != nil || perr != nil || n != 0 {
					w.Errorf("%x is there: %q, %v", a.Key, a.Value, err)
				}
			}
		}
		for a, err := range w.s.Attachments(bg, chain.AttachBlob, keyspace.NodePrefix(one)) {
			w.Errorf("node %x is there: %q, %v", a.Key, a.Value, err)
		}
		w.laid(stream, other, Secret)
		w.open(r)
	}
	if done := w.erase(what); !reflect.DeepEqual(done, chain.Erased{Already: 2}) {
		w.Errorf("again: %+v", done)
	}
	w.nowhere(Secret)
}
