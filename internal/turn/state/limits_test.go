package state_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// text returns a JSON string of n bytes.
func text(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

// TestKeyAndValueLimits: at the limit a value is stored and read back, one past it is refused.
func TestKeyAndValueLimits(t *testing.T) {
	w := newWorld(t)
	key, value := strings.Repeat("é", 127)+"k", text(state.MaxValue)
	scope := state.Scope{Mode: state.Persistent, ID: strings.Repeat("i", state.MaxKey)}
	a := w.begin(scope, "").set(key, value).set("short", " "+text(state.MaxValue)+"\n")
	wantCode(t, a.Set(key+"k", raw("1"), 0), tga.ValidationError)
	wantCode(t, a.Set("k", raw(text(state.MaxValue+1)), 0), tga.LimitExceeded)
	wantCode(t, a.Set("k", raw(strings.Repeat("[", 129)+strings.Repeat("]", 129)), 0), tga.LimitExceeded)
	a.set("deep", strings.Repeat("[", 128)+strings.Repeat("]", 128))
	wantCode(t, a.Append("d", raw(strings.Repeat("[", 128)+strings.Repeat("]", 128))), tga.LimitExceeded)
	a.add("d", strings.Repeat("[", 127)+strings.Repeat("]", 127))
	a.commit()
	w.reopen()
	b := w.begin(scope, "")
	b.wants(key, value)
	b.set("d", b.get("d")) // what an append made can be set
	b.Discard()
}

// TestAppendLimit: the list may have at most MaxValue bytes, whatever it is appended to: nothing,
// an empty list, another transaction's list, the transaction's own, committed or not.
func TestAppendLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("megabytes, slow under the race detector")
	}
	w := newWorld(t)
	const item = 1000
	for name, base := range map[string]string{"absent": "", "empty": "[]", "one": "[1]", "text": `["a","b"]`} {
		for _, own := range []bool{false, true} {
			for appends := 1; appends <= 3; appends++ {
				t.Run(fmt.Sprintf("%s/%v/%d", name, own, appends), func(t *testing.T) {
					w.tb = t
					defer func() { w.tb = nil }()
					w.begin(session, "").del("k").commit()
					a := w.begin(session, "")
					if base != "" {
						a.set("k", base)
						if !own {
							a.commit()
							a = w.begin(session, "")
						}
					}
					defer a.Discard()
					have := max(len(base), 2)
					comma := 1
					if have == 2 {
						comma = 0
					}
					for range appends - 1 {
						a.add("k", text(item))
						have, comma = have+item+comma, 1
					}
					rest := state.MaxValue - have - comma
					wantCode(t, a.Append("k", raw(text(rest+1))), tga.LimitExceeded)
					a.add("k", text(rest))
					if got := len(a.get("k")); got != state.MaxValue {
						t.Errorf("the list has %d bytes", got)
					}
					wantCode(t, a.Append("k", raw("1")), tga.LimitExceeded)
					a.commit()
				})
			}
		}
	}
	w.tb = t
	// Two appends that fit, each alone.
	w.begin(session, "").set("k", "[]").commit()
	a, b := w.begin(session, ""), w.begin(session, "")
	a.add("k", text(state.MaxValue-10))
	b.add("k", text(20)).commit()
	wantConflict(t, a.try(), "k")
	a.Discard()
}

// TestKeysLimit: the keys that a transaction must remember are bounded, and so are the keys of
// one request.
func TestKeysLimit(t *testing.T) {
	serial.Test(t)
	w := newWorld(t)
	a, c := w.begin(session, state.Serializable), w.begin(session, state.ReadCommitted)
	keys := make([]string, state.MaxKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%05d", i)
	}
	_, err := c.GetMany(append(keys, "one more"))
	wantCode(t, err, tga.LimitExceeded)
	for _, key := range keys[:100] {
		a.set(key, "1")
	}
	_, err = a.GetMany(keys)
	must(t, err)
	_, err = a.Get("one more")
	wantCode(t, err, tga.LimitExceeded)
	wantCode(t, a.Set("one more", raw("1"), 0), tga.LimitExceeded)
	wantCode(t, a.Delete("one more"), tga.LimitExceeded)
	a.set(keys[9_999], "1").wants(keys[0], "1")
	for _, key := range keys {
		c.set(key, "1")
	}
	wantCode(t, c.Append("one more", raw("1")), tga.LimitExceeded)
	_, err = c.Get("one more") // this level need not remember it
	must(t, err)
	c.commit()
	b := w.begin(session, "")
	if got, err := b.Keys(); err != nil || len(got) != state.MaxKeys {
		t.Errorf("%d keys, %v", len(got), err)
	}
	b.Discard()
	a.Discard()
}

// TestBytesLimit: the bytes of a transaction's operations are bounded, including those that were
// rolled back, which are kept too. The bytes of the values that it replaces are bounded as well.
func TestBytesLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("megabytes, slow under the race detector")
	}
	w := newWorld(t)
	a := w.begin(session, "")
	const each = state.MaxValue
	n := state.MaxBytes/each - 1
	for i := range n {
		a.set("k", text(each-64-1)) // and as many of its key and the operation
		if i == 1 {
			must(t, a.Rollback("")) // 64 bytes
		}
	}
	wantCode(t, a.Set("k", raw(text(each-64-1-64+1)), 0), tga.LimitExceeded)
	a.set("k", text(each-64-1-64))
	wantCode(t, a.Delete("k"), tga.LimitExceeded)
	wantCode(t, second(a.Checkpoint()), tga.LimitExceeded)
	wantCode(t, a.Rollback(""), tga.LimitExceeded)
	wantCode(t, second(a.Get("other")), tga.LimitExceeded)
	wantCode(t, second(a.Keys()), tga.LimitExceeded)
	a.Discard()

	half := state.MaxBytes / each / 2
	for batch := range 3 {
		b := w.begin(session, "")
		for i := range half {
			b.set(fmt.Sprint(batch, i), text(each))
		}
		b.commit()
	}
	for _, over := range []bool{true, false} {
		c := w.begin(session, "")
		for batch := range 2 {
			for i := range half {
				c.del(fmt.Sprint(batch, i))
			}
		}
		if over {
			c.del("2 0")
			_, err := c.Changes()
			wantCode(t, err, tga.LimitExceeded)
			wantCode(t, c.try(), tga.LimitExceeded)
			c.Discard()
			continue
		}
		if changes, err := c.Changes(); err != nil || len(changes) != 2*half {
			t.Errorf("%d changes, %v", len(changes), err)
		}
		c.commit()
	}
}
