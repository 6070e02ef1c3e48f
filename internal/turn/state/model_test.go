package state_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// value is a key's value in the model: its text, "" for none, its expiry, 0 for never, and the
// commit that wrote it.
type value struct {
	text   string
	ends   int64
	commit int
}

func (v value) alive(now int64) bool { return v.text != "" && (v.ends == 0 || now < v.ends) }

// modelOp is a write of a transaction.
type modelOp struct {
	key, text string
	add       bool
	ends      int64
	stamp     int // its number among the operations of all transactions
}

// over returns a value after ops; ok is false if one of them appends to a value that is not a
// list.
func over(ops []modelOp, base value, now int64) (v value, ok bool) {
	if base.alive(now) {
		v = base
	}
	for i, op := range ops {
		switch {
		case slices.ContainsFunc(ops[i+1:], func(op modelOp) bool { return !op.add }):
			// a later operation hides it
		case !op.add:
			v = value{text: op.text, ends: op.ends}
		case v.text == "" || v.text == "[]":
			v.text = "[" + op.text + "]"
		case !strings.HasPrefix(v.text, "["):
			return value{}, false
		default:
			v.text = strings.TrimSuffix(v.text, "]") + "," + op.text + "]"
		}
	}
	return v, true
}

// modelTx is the model of a transaction, which is a list of writes and of first reads.
type modelTx struct {
	*state.Tx
	level state.Isolation
	base  map[string]value // what was committed when it began
	ops   []modelOp
	saved []saved
	reads map[string]value
}

// saved is a savepoint: the number of writes before it.
type saved struct {
	name string
	ops  int
}

func (m *modelTx) of(key string) (ops []modelOp) {
	for _, op := range m.ops {
		if op.key == key {
			ops = append(ops, op)
		}
	}
	return ops
}

// blind says that the committed value of a key does not matter.
func (m *modelTx) blind(key string) bool {
	return slices.ContainsFunc(m.of(key), func(op modelOp) bool { return !op.add })
}

func (m *modelTx) repeats() bool {
	return m.level == state.RepeatableRead || m.level == state.Serializable
}

// model is the whole history: the committed values, and the transactions that are open.
type model struct {
	*rapid.T
	w       *world
	scope   state.Scope
	now     map[string]value
	open    []*modelTx
	commits int
	stamp   int
}

func (m *model) millis() int64 { return m.w.clock().UnixMilli() }

// under returns the value of a key that a transaction sees below its own writes.
func (m *model) under(t *modelTx, key string) value {
	if v, ok := t.reads[key]; ok {
		v.ends = 0
		return v
	}
	if t.repeats() {
		return t.base[key]
	}
	v := m.now[key]
	if t.level != state.ReadUncommitted {
		return v
	}
	var newest []modelOp
	for _, u := range m.open {
		if ops := u.of(key); u != t && len(ops) > 0 && (newest == nil || ops[len(ops)-1].stamp > newest[len(newest)-1].stamp) {
			newest = ops
		}
	}
	if dirty, ok := over(newest, v, m.millis()); ok && newest != nil {
		return dirty
	}
	return v
}

func (t *modelTx) remember(key string, now int64) {
	if _, ok := t.reads[key]; ok || !t.repeats() {
		return
	}
	v := t.base[key]
	if !v.alive(now) {
		v = value{}
	}
	t.reads[key] = v
}

func (m *model) read(t *modelTx, key string) {
	if !t.blind(key) {
		t.remember(key, m.millis())
	}
	want, ok := over(t.of(key), m.under(t, key), m.millis())
	got, err := t.Get(key)
	switch {
	case !ok:
		wantCode(m, err, tga.StateConflict)
	case err != nil:
		m.Fatal(err)
	case !want.alive(m.millis()) && got != nil, want.alive(m.millis()) && string(got) != want.text:
		m.Fatalf("%s reads %s as %q, want %q", t.level, key, got, want.text)
	}
}

func (m *model) list(t *modelTx) {
	var want []string
	for _, key := range modelKeys {
		t.remember(key, m.millis())
		if v, _ := over(t.of(key), m.under(t, key), m.millis()); v.alive(m.millis()) {
			want = append(want, key)
		}
	}
	got, err := t.Keys()
	if err != nil || !slices.Equal(got, want) {
		m.Fatalf("%s lists %q, %v, want %q", t.level, got, err, want)
	}
}

func (m *model) write(t *modelTx, op modelOp) {
	m.stamp++
	op.stamp = m.stamp
	t.ops = append(t.ops, op)
}

func (m *model) append(t *modelTx, key, text string) {
	err := t.Append(key, raw(text))
	ops := t.of(key)
	v, ok := over(ops, m.under(t, key), m.millis())
	if !ok || v.alive(m.millis()) && !strings.HasPrefix(v.text, "[") {
		wantCode(m, err, tga.ValidationError)
		return
	}
	if err != nil {
		m.Fatalf("append to %s %q: %v", key, v.text, err)
	}
	op := modelOp{key: key, text: text, add: true}
	if t.blind(key) && !v.alive(m.millis()) { // its own value expired, or it deleted the key
		op.add, op.text = false, "["+text+"]"
	}
	m.write(t, op)
}

// commit applies a transaction to the committed values, in one instant, or returns the keys for
// which it is refused.
func (m *model) commit(t *modelTx) {
	now := m.millis()
	stale := map[string]bool{}
	if len(t.ops) > 0 {
		for key, was := range t.reads {
			is := m.now[key]
			if !is.alive(now) {
				is = value{}
			}
			if is.commit != was.commit && (t.level == state.Serializable || len(t.of(key)) > 0) {
				stale[key] = true
			}
		}
	}
	next := maps.Clone(m.now)
	for _, key := range modelKeys {
		ops := t.of(key)
		if len(ops) == 0 {
			continue
		}
		v, ok := over(ops, m.now[key], now)
		if !ok {
			stale[key] = true
		}
		if v.commit = m.commits + 1; !v.alive(now) {
			v = value{}
		}
		next[key] = v
	}
	err := t.Commit(bg, m.w.append)
	var c *state.Conflict
	switch {
	case errors.As(err, &c):
		if want := slices.Sorted(maps.Keys(stale)); !slices.Equal(c.Keys, want) {
			m.Fatalf("%s: conflict about %q, want %q", t.level, c.Keys, want)
		}
		t.Discard()
	case err != nil:
		m.Fatal(err)
	case len(stale) > 0:
		m.Fatalf("%s commits, although %v changed", t.level, stale)
	default:
		m.commits++
		m.serial(t, m.now, now)
		m.now = next
	}
}

// serial checks the claim itself: everything that a serializable transaction read is what it
// reads if it runs alone, at the instant of its commit if it wrote, else at its begin, except for
// values that expired since.
func (m *model) serial(t *modelTx, committed map[string]value, now int64) {
	if t.level != state.Serializable {
		return
	}
	for key, v := range t.reads {
		is := committed[key]
		if len(t.ops) == 0 {
			if is = t.base[key]; v.text == "" && is.ends != 0 {
				continue
			}
		} else if !is.alive(now) {
			is = value{}
		}
		if v.text != is.text {
			m.Fatalf("it read %s as %q, and alone would as %q", key, v.text, is.text)
		}
	}
}

var modelKeys = []string{"a", "b", "c", "d"}

// TestHistoriesAgreeWithTheModel runs random histories of concurrent transactions of all levels,
// with advancing time, savepoints and collections. Each read, each refusal and the final values
// agree with a simple model in which commits happen one after the other.
func TestHistoriesAgreeWithTheModel(t *testing.T) {
	w := newWorld(t)
	histories, commits, refused := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		histories++
		w.tb = rt
		m := &model{T: rt, w: w, scope: state.Scope{Mode: state.Persistent, ID: fmt.Sprint(histories)}, now: map[string]value{}}
		defer func() {
			for _, t := range m.open {
				t.Discard()
			}
		}()
		for range rapid.IntRange(1, 100).Draw(rt, "steps") {
			m.step(&commits, &refused)
		}
		for len(m.open) > 0 {
			m.end(0, true, &commits, &refused)
		}
		a := w.begin(m.scope, state.ReadCommitted)
		defer a.Discard()
		for _, key := range modelKeys {
			if v := m.now[key]; v.alive(m.millis()) {
				a.wants(key, v.text)
			} else {
				a.wants(key, "")
			}
		}
	})
	w.tb = t
	t.Logf("%d histories, %d commits, %d refused", histories, commits, refused)
	if refused == 0 || commits == 0 {
		t.Error("nothing was refused, or nothing committed")
	}
}

func (m *model) end(i int, commit bool, commits, refused *int) {
	t := m.open[i]
	m.open = slices.Delete(m.open, i, i+1)
	if !commit {
		t.Discard()
		return
	}
	m.commit(t)
	if t.Status() == state.Committed {
		*commits++
	} else {
		*refused++
	}
}

func (m *model) step(commits, refused *int) {
	what := rapid.SampledFrom([]string{"begin", "get", "get", "get", "keys", "set", "set", "delete", "append", "append", "checkpoint", "rollback", "commit", "commit", "discard", "time", "collect"}).Draw(m.T, "what")
	if what == "begin" && len(m.open) == 4 {
		what = "commit"
	}
	switch {
	case what == "begin" || len(m.open) == 0:
		level := rapid.SampledFrom([]state.Isolation{state.Serializable, state.Serializable, state.RepeatableRead, state.ReadCommitted, state.ReadUncommitted}).Draw(m.T, "level")
		t := m.w.begin(m.scope, level)
		m.open = append(m.open, &modelTx{Tx: t.Tx, level: level, base: maps.Clone(m.now), reads: map[string]value{}})
		return
	case what == "time":
		m.w.advance(time.Duration(rapid.IntRange(1, 20).Draw(m.T, "ms")) * time.Millisecond)
		return
	case what == "collect":
		_, err := m.w.space.Collect(bg, m.scope)
		must(m, err)
		return
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(m.T, "transaction")
	t, key := m.open[i], rapid.SampledFrom(modelKeys).Draw(m.T, "key")
	switch what {
	case "get":
		m.read(t, key)
	case "keys":
		if !slices.ContainsFunc(modelKeys, func(key string) bool { _, ok := over(t.of(key), m.under(t, key), m.millis()); return !ok }) {
			m.list(t)
		}
	case "set":
		op := modelOp{key: key, text: rapid.SampledFrom([]string{"[]", "[0]", "1", `"x"`}).Draw(m.T, "value")}
		ttl := rapid.IntRange(0, 30).Draw(m.T, "ttl")
		if ttl > 0 {
			op.ends = m.millis() + int64(ttl)
		}
		must(m, t.Set(key, raw(op.text), time.Duration(ttl)*time.Millisecond))
		m.write(t, op)
	case "delete":
		must(m, t.Delete(key))
		m.write(t, modelOp{key: key})
	case "append":
		m.append(t, key, rapid.SampledFrom([]string{"1", "2"}).Draw(m.T, "value"))
	case "checkpoint", "rollback":
		m.savepoint(t, what)
	case "commit", "discard":
		m.end(i, what == "commit", commits, refused)
	}
}

func (m *model) savepoint(t *modelTx, what string) {
	if t.level == state.ReadUncommitted {
		_, err := t.Checkpoint()
		wantCode(m, err, tga.ValidationError)
		wantCode(m, t.Rollback(""), tga.ValidationError)
		return
	}
	if what == "checkpoint" {
		name, err := t.Checkpoint()
		must(m, err)
		t.saved = append(t.saved, saved{name, len(t.ops)})
		return
	}
	i := rapid.IntRange(0, len(t.saved)).Draw(m.T, "savepoint")
	if i == 0 {
		must(m, t.Rollback(""))
		t.ops, t.saved = nil, nil
		return
	}
	p := t.saved[i-1]
	must(m, t.Rollback(p.name))
	t.ops, t.saved = t.ops[:p.ops:p.ops], t.saved[:i:i]
}
