package engine

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestWhatTheWitnessSays: the store has the token of the last open or of the one that began. A store that
// was opened less often than the witness saw was rolled back; one that was opened as often went another way.
func TestWhatTheWitnessSays(t *testing.T) {
	store, v := numbered(1, 1), vantage{dir: "store", path: "w"}
	own, other := store.String(), numbered(2, 2).String()
	last, next := witnessToken{7, "aa"}, &witnessToken{8, "bb"}
	for _, c := range []struct {
		w    *witness
		has  witnessToken
		code tga.Code
		says string
	}{
		{nil, witnessToken{3, ""}, "", ""},
		{nil, witnessToken{3, "aa"}, tga.StoreUnavailable, "is missing"},
		{&witness{Store: other, Last: last}, last, tga.StateChecksumMismatch, "is of store " + other},
		{&witness{Store: own, Last: last}, last, "", ""},
		{&witness{Store: own, Last: last, Next: next}, last, "", ""},
		{&witness{Store: own, Last: last, Next: next}, *next, "", ""},
		{&witness{Store: own, Last: last}, *next, tga.StateChecksumMismatch, "went another way"},
		{&witness{Store: own, Last: last, Next: next}, witnessToken{6, "cc"}, tga.StateChecksumMismatch, "rolled back"},
		{&witness{Store: own, Last: last, Next: next}, witnessToken{7, "cc"}, tga.StateChecksumMismatch, "went another way"},
		{&witness{Store: own, Last: last, Next: next}, witnessToken{8, "cc"}, tga.StateChecksumMismatch, "went another way"},
	} {
		err := v.contradicts(c.w, store, c.has)
		if tga.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v of %+v: %v", c.has, c.w, err)
		}
	}
}
