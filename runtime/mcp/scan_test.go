package mcp

import (
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func scan(msg string, limit int64, step int) *message {
	s := newMessage(limit)
	for len(msg) > 0 {
		n := min(step, len(msg))
		_, _ = s.Write([]byte(msg[:n]))
		msg = msg[n:]
	}
	return s
}

func TestCaptureAtItsLimit(t *testing.T) {
	const value = `{"x":"0123456789"}`
	msg := `{"id":1,"result":` + value + `}`
	for limit := int64(0); limit < int64(len(value))+3; limit++ {
		for step := 1; step <= len(msg); step++ {
			s := scan(msg, limit, step)
			over := limit < int64(len(value))
			if s.result.truncated() != over || (s.result.data == nil) != over ||
				s.result.bytes != int64(len(value)) || s.result.digest() != tga.Sum([]byte(value)) {
				t.Fatalf("limit %d, step %d: %+v", limit, step, s.result)
			}
		}
	}
}

func answerOf(msg string) *answer {
	s := scan(msg, 1000, len(msg))
	s.done()
	return answerIn(s)
}

// TestIDsOfAnswers: an answer belongs to a request whose number it has, however it is written.
func TestIDsOfAnswers(t *testing.T) {
	for id, want := range map[string]bool{`7`: true, `7.0`: true, `"7"`: true, `"07x"`: false, `8`: false, `"8"`: false, `7.5`: false, `null`: false} {
		m := newMessage(1 << 10)
		_ = m.add([]byte(`{"id":` + id + `,"result":{}}`)) // never fails
		m.done()
		if got, ok := m.number(); (ok && got == 7) != want {
			t.Errorf("%s is the id %d, %v", id, got, ok)
		}
	}
}

func TestReplies(t *testing.T) {
	for _, c := range []struct{ msg, status, doubt string }{
		{`{"id":1,"result":{}}`, "SUCCESS", ""},
		{`{"id":1,"result":{"isError":false,"resultType":"complete"}}`, "SUCCESS", ""},
		{`{"id":1,"result":{"isError":true}}`, "FAILURE", ""},
		{`{"id":1,"result":{"IsError":true,"iserror":true}}`, "SUCCESS", ""}, // other members
		{`{"id":1,"error":{"code":-32602,"message":""}}`, "FAILURE", ""},
		{`{"id":1,"error":{"code":-32603}}`, "FAILURE", ""},
		{`{"id":1,"error":{"code":-32001}}`, "", "does not know"},
		{`{"id":1,"result":{"resultType":"input_required"}}`, "", `resultType is "input_required"`},
		{`{"id":1,"result":{"resultType":"task"}}`, "", `resultType is "task"`},
		{`{"id":1,"result":{"resultType":"novel"}}`, "", `resultType is "novel"`},
		{`{"id":1,"result":{"resultType":1}}`, "", "resultType"},
		{`{"id":1,"result":{"isError":"yes"}}`, "", "isError"},
		{`{"id":1,"result":null}`, "", "null"},
		{`{"id":1,"result":[]}`, "", "no JSON object"},
		{`{"id":1,"result":{"a":01}}`, "", "no JSON object"},
		{`{"id":1,"error":"no"}`, "", "error member"},
		{`{"id":1,"error":{"code":1},"result":{}}`, "", "both"},
		{`{"id":1,"error":null,"result":{}}`, "SUCCESS", ""},
		{`{"id":1,"error":{"code":-32603},"result":null}`, "FAILURE", ""},
		{`{"id":1,"error":null,"result":null}`, "", "null"},
		{`{"id":1}`, "", "neither"},
	} {
		r, err := answerOf(c.msg).reply(1)
		if c.doubt != "" {
			if err == nil || !strings.Contains(err.Error(), c.doubt) || errors.Is(err, runtime.ErrNotSent) {
				t.Errorf("%s: %+v, %v; want doubt: %s", c.msg, r, err, c.doubt)
			}
			continue
		}
		if err != nil || r.Status != c.status {
			t.Errorf("%s: %+v, %v", c.msg, r, err)
		}
	}
}

// TestCallThatWaitsForAURLHasNotRun: the server says that a person must open a URL before it runs the call. As an effect, that would
// answer each repeat of the call's key. It is not tried again at once, and is no failure of the server: the code says so to the retry and to the breaker.
func TestCallThatWaitsForAURLHasNotRun(t *testing.T) {
	for _, attempt := range []uint32{1, 2} {
		r, err := answerOf(`{"id":1,"error":{"code":-32042,"message":"sign in"}}`).reply(attempt)
		if !errors.Is(err, runtime.ErrNotSent) || !errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), "sign in") {
			t.Errorf("attempt %d: %+v, %v", attempt, r, err)
		}
	}
}

// An earlier attempt may have run. Only a result says something about that attempt too, because the
// tool gives it for the call's key.
func TestLaterAttemptThatFailsEndsNoDoubt(t *testing.T) {
	for _, c := range []struct {
		a       *answer
		notSent bool
	}{
		{answerOf(`{"id":1,"error":{"code":-32602}}`), true},
		{&answer{refused: "HTTP status 401"}, true},
		{answerOf(`{"id":1,"error":{"code":-32603}}`), false},
	} {
		if r, err := c.a.reply(1); err != nil || r.Status == tga.StatusSuccess {
			t.Errorf("attempt 1: %+v, %v", r, err)
		}
		if r, err := c.a.reply(2); err == nil || errors.Is(err, runtime.ErrNotSent) != c.notSent {
			t.Errorf("attempt 2: %+v, %v", r, err)
		}
	}
	for _, msg := range []string{`{"id":1,"result":{}}`, `{"id":1,"result":{"isError":true}}`} {
		if r, err := answerOf(msg).reply(2); err != nil {
			t.Errorf("%s: %+v, %v", msg, r, err)
		}
	}
}
