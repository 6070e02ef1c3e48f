package checkpoint

import (
	"bytes"
	"testing"
)

// fixedKeys belong to no store. Each process of a fuzzing run makes the seeds anew, and must make the same
// ones.
var fixedKeys = [2]string{
	"PRIVATE+KEY+tgad/test+b3ce5031+AVJxvmyQLUXK+g0f7p8kcdmU9o75Vv4XxVtC8lNp+sws",
	"PRIVATE+KEY+tgad/test+62493faf+AYJgdr76ybhTwOUHbmfvXFM4jFX25+CaHC4Hih4rTDBy",
}

// FuzzNotes: for any bytes, a note is believed only for the text that was signed, and a file gives back only
// complete notes.
func FuzzNotes(f *testing.F) {
	t := new(testing.T)
	var keys [2]Signer
	for i, secret := range fixedKeys {
		var err error
		if keys[i], err = ParseSigner(secret); err != nil {
			f.Fatal(err)
		}
	}
	first, second := keys[0], keys[1]
	good := signed(t, at(5), first)
	over, err := HandOver(at(5), first, second)
	if err != nil {
		f.Fatal(err)
	}
	a := Acceptance{Origin: origin, Who: "me\nand another line", Size: 3}
	accepted, err := a.Sign(first)
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{good, over, accepted, frame(good)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		keys := trust(t, first)
		if c, _, err := keys.Open(b); err == nil && c != at(5) {
			t.Errorf("a checkpoint is believed: %+v", c)
		}
		if got, err := keys.OpenAcceptance(b); err == nil && got != a {
			t.Errorf("an acceptance is believed: %+v", got)
		}
		if c, err := keys.Follow(b); err == nil && c != at(5) {
			t.Errorf("a hand-over is believed: %+v", c)
		}
		if c, err := Unverified(b); err == nil && c.Size < 0 {
			t.Errorf("a checkpoint of %d leaves", c.Size)
		}
		if raw := parseFrame(b); raw != nil && !bytes.HasPrefix(b, frame(raw)) {
			t.Error("a frame is another than it was read from")
		}
	})
}
