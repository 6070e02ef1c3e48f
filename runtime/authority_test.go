package runtime_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// allowed is the same matrix in another form: for each subject and origin, who may write it,
// with the fewest sufficient rights.
var allowed = map[string]runtime.Rights{
	"a request/nobody/process": 0,
	"a request/nobody/peer":    runtime.RightAppend,

	"an approval/the daemon/process":        0,
	"an approval/a remote executor/process": 0,
	"an approval/another peer/process":      0,
	"a denial/the daemon/process":           0,
	"a denial/a remote executor/process":    0,
	"a denial/another peer/process":         0,
	"an approval/the daemon/votes":          runtime.RightDecide,
	"an approval/a remote executor/votes":   runtime.RightDecide,
	"an approval/another peer/votes":        runtime.RightDecide,
	"a denial/the daemon/votes":             runtime.RightDecide,
	"a denial/a remote executor/votes":      runtime.RightDecide,
	"a denial/another peer/votes":           runtime.RightDecide,
	"an approval/the daemon/peer":           runtime.RightDecide | runtime.RightSign,
	"an approval/a remote executor/peer":    runtime.RightDecide | runtime.RightSign,
	"an approval/another peer/peer":         runtime.RightDecide | runtime.RightSign,
	"an approval/the peer itself/peer":      runtime.RightDecide | runtime.RightSign | runtime.RightSelf,
	"a denial/the daemon/peer":              runtime.RightDecide,
	"a denial/a remote executor/peer":       runtime.RightDecide,
	"a denial/another peer/peer":            runtime.RightDecide,
	"a denial/the peer itself/peer":         runtime.RightDecide,

	"a call/the daemon/process":                           0,
	"a call/another peer/process":                         0,
	"a call/a remote executor/permit":                     0,
	"a call/the peer itself/peer":                         runtime.RightAppend,
	"a call that is never sent/the daemon/process":        0,
	"a call that is never sent/a remote executor/process": 0,
	"a call that is never sent/another peer/process":      0,
	"a call that is never sent/the peer itself/peer":      runtime.RightAppend,
	"a call that is never sent/the daemon/person":         runtime.RightAdmin,
	"a call that is never sent/a remote executor/person":  runtime.RightAdmin,
	"a call that is never sent/another peer/person":       runtime.RightAdmin,
	"an effect/the daemon/process":                        0,
	"an effect/a remote executor/permit":                  0,
	"an effect/the daemon/probe":                          0,
	"an effect/a remote executor/probe":                   0,
	"an effect/another peer/probe":                        0,
	"an effect/the daemon/person":                         runtime.RightAdmin,
	"an effect/a remote executor/person":                  runtime.RightAdmin,
	"an effect/another peer/person":                       runtime.RightAdmin,
	"an effect/the peer itself/peer":                      runtime.RightAppend,
}

// TestWhoMayAppendWhat tests the whole grid of subjects, writers, origins and rights,
// legal and illegal.
func TestWhoMayAppendWhat(t *testing.T) {
	legal := 0
	for s := runtime.ARequest; s <= runtime.AnEffect; s++ {
		for w := runtime.ByProcess; w <= runtime.ByPeer; w++ {
			for o := runtime.OfNobody; o <= runtime.OfAnother; o <<= 1 {
				needs, ok := allowed[fmt.Sprintf("%v/%v/%v", s, o, w)]
				for r := runtime.Rights(0); r < 2*runtime.RightSelf; r++ {
					err := runtime.MayAppend(runtime.Claim{Subject: s, Writer: w, Origin: o, Rights: r})
					want := ok && needs&^r == 0
					if want != (err == nil) || err != nil && !errors.Is(err, tga.PermissionDenied) {
						t.Errorf("%v about what %v did, by %v with rights %05b: %v, want it allowed: %v", s, o, w, r, err, want)
					}
					if want {
						legal++
					}
				}
			}
		}
	}
	if legal == 0 {
		t.Error("nothing was allowed")
	}
}
