package interleave

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// gives notes that a shim says of traces that their answers were delivered, where a client has
// seen one. Whether the daemon takes it in is known once it has answered.
func (w *world) gives(traces []tga.ID) {
	for _, trace := range traces {
		if w.shown[trace] != "" {
			w.given[trace] = true
		}
	}
}

// begunWith notes that a begin that took notes along was answered without an error: they are
// durable. One of a call that nobody has the answer of is to be refused.
func (w *world) begunWith(traces []tga.ID) {
	for _, trace := range traces {
		if w.shown[trace] == "" {
			w.broken("%s was noted as delivered by a begin, and nobody has its answer", short(trace))
		}
		w.noted(trace)
	}
}

// noted notes that the daemon knows of a delivery. Of a call whose answer nobody has, it has
// nothing to know.
func (w *world) noted(trace tga.ID) {
	if w.shown[trace] != "" && !w.claimed(trace) {
		w.isNoted[trace] = w.shown[trace]
	}
}

// lists holds an append to the lists of undelivered calls that it changes. A call leaves such a
// list when somebody says that its answer was delivered, or when it is in nobody's way: it did
// not run. One that leaves it otherwise would be run again by its repeat. And one that was noted
// never comes back: its answer would be served to another call.
func (w *world) lists(b chain.Batch) {
	for _, a := range b.Attachments {
		if a.Kind != chain.AttachStream {
			continue
		}
		old, err := w.store.Attachment(context.Background(), a.Kind, a.Key)
		if err != nil {
			w.broken("the list of undelivered calls cannot be read: %v", err)
			return
		}
		was, will := listOf(old), listOf(a.Value)
		for trace := range was {
			if !will[trace] && !w.given[trace] && w.ran(trace) {
				w.broken("%s leaves the list of undelivered calls, and nobody said that its answer was delivered", short(trace))
			}
		}
		for trace := range will {
			if of, ok := w.isNoted[trace]; ok {
				w.broken("%s is in a list of undelivered calls, and was noted as delivered for %s", short(trace), of)
			}
		}
	}
}

// listOf is the traces of a row, none where the row is no such list.
func listOf(row []byte) map[tga.ID]bool {
	var list []struct {
		Trace tga.ID `json:"trace"`
	}
	if json.Unmarshal(row, &list) != nil {
		return nil
	}
	traces := map[tga.ID]bool{}
	for _, u := range list {
		traces[u.Trace] = true
	}
	return traces
}

// ran reports whether a call may have run, as its log has it.
func (w *world) ran(trace tga.ID) bool {
	t, err := w.store.Load(context.Background(), trace)
	if err != nil {
		w.broken("%s is in a list and cannot be read: %v", short(trace), err)
		return false
	}
	if t.Effect == nil {
		return t.Head.State == tga.Executing
	}
	class := ledger.ClassOf(t.Effect)
	return !class.Retryable() && class != ledger.ClassNotSent
}

// shows is told that a client has the answer of a trace. While no shim's process died, each
// call that was meant has an answer of its own.
func (w *world) shows(l *life, trace tga.ID) {
	what := fmt.Sprint(l.script.name, " call ", l.number("call"))
	if w.claimed(trace) {
		w.shown[trace] = what // the answer is a model's word, and says so
		return
	}
	if first, ok := w.shown[trace]; ok && w.Deaths == 0 {
		w.broken("%s was answered with %s, which is the answer of %s: it never ran", what, short(trace), first)
	}
	// A note is durable, whoever dies: from then on the same call is another one.
	if of, ok := w.isNoted[trace]; ok && of != what {
		w.broken("%s was answered with %s, which was noted as delivered for %s", what, short(trace), of)
	}
	w.shown[trace] = what
	if ran, _, _ := w.net.look(trace); !ran {
		w.broken("%s was answered with %s, which never ran", what, short(trace))
	}
}

// happened checks that nothing happens oftener than it was meant. A tool that need not be
// called once only is another matter.
func (w *world) happened() {
	if w.Policy.Licence.Kind == ledger.ReadOnly {
		return
	}
	times := map[string]int{}
	for key, n := range w.net.effects {
		times[w.net.args[key]] += n
	}
	for args, most := range w.meant {
		if times[args] > most {
			w.broken("%s was meant %d times, and happened %d times", args, most, times[args])
		}
	}
}
