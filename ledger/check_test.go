package ledger

import (
	"errors"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestStoredRecordDisagrees: each way in which a stored record can contradict the log of a trace is
// an error. A record of another trace, which may have taken the key over, is not.
func TestStoredRecordDisagrees(t *testing.T) {
	open := reserved(t, nil)
	done := must[Record](t)(open.Settle(effect(tga.StatusSuccess, nil), 4))
	confirmed := must[Record](t)(done.ApplyNote(confirmation(t, Confirmed)))
	released := settled(t, ClassRetryable)
	if !released.Class.Releases() || done.Class.Releases() {
		t.Fatal(released.Class, done.Class)
	}
	others := func(r Record) *Record { r.TraceID = traceB; return &r }
	expired := func(r Record) *Record { x := must[Record](t)(r.Expire()); return &x }
	otherDigest := *expired(done)
	otherDigest.RequestDigest[0]++

	for name, c := range map[string]struct {
		want   Record
		stored *Record
		agree  bool
	}{
		"the same, reserved":                     {open, &open, true},
		"the same, settled":                      {done, &done, true},
		"the same, confirmed":                    {confirmed, &confirmed, true},
		"none":                                   {done, nil, false},
		"settled, and the log has no effect":     {open, &done, false},
		"reserved, and the log has an effect":    {done, &open, false},
		"confirmed, and the log has no note":     {done, &confirmed, false},
		"not confirmed, and the log has a note":  {confirmed, &done, false},
		"expired":                                {done, expired(done), true},
		"expired, of another request":            {done, &otherDigest, false},
		"expired, and the log has no effect":     {open, expired(done), false},
		"expired, of another class":              {done, expired(released), false},
		"another trace's, this one released it":  {released, others(open), true},
		"another trace's, this one still has it": {open, others(open), false},
		"another trace's, this one settled it":   {done, others(done), false},
	} {
		err := c.want.Check("k", c.stored)
		if c.agree != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		var told *tga.Error
		if err != nil && (!errors.As(err, &told) || told.Code != tga.StateChecksumMismatch || told.Where != "stored" || told.TraceID != c.want.TraceID) {
			t.Errorf("%s: %+v", name, err)
		}
	}
}
