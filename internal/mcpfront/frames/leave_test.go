package frames

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestSessionIsOverWithItsLastAnswer: a session that was refused takes no message. It is over when nothing is under way in it, or when
// an answer has not come for a long time.
func TestSessionIsOverWithItsLastAnswer(t *testing.T) {
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for name, c := range map[string]struct {
		under int
		ends  func(*remote)
	}{
		"nothing is under way":  {0, func(*remote) {}},
		"the answer comes":      {1, (*remote).over},
		"the answer comes late": {1, func(*remote) { time.Sleep(lastAnswers); synctest.Wait() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Dial(t.Context(), Endpoint{URL: "http://127.0.0.1:1", Log: slog.New(slog.DiscardHandler)}, func(*Frame) {}).(*remote)
				r.under = c.under
				r.expire(errors.New("the session is over"))
				if !closed(r.Leaves()) || closed(r.Done()) != (c.under == 0) {
					t.Errorf("leaves %v, done %v", closed(r.Leaves()), closed(r.Done()))
				}
				if c.ends(r); !closed(r.Done()) {
					t.Error("it goes on")
				}
				r.Close()
			})
		})
	}
}
