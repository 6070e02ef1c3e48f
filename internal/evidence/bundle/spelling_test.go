package bundle

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestNullIsNoSecondSpelling: for an empty list, null would mean the same and is refused.
func TestNullIsNoSecondSpelling(t *testing.T) {
	s := newStand(t, 1)
	whole := string(s.bundle(s.content(1)))
	about := whole[strings.Index(whole, `"about":`)+8 : strings.Index(whole, `,"origin"`)]
	for _, list := range []string{`"proof":[]`, `"about":` + about} {
		name, _, _ := strings.Cut(list, ":")
		changed := strings.Replace(whole, list, name+":null", 1)
		if changed == whole {
			t.Fatalf("%s is not there", list)
		}
		if _, err := s.verify([]byte(changed)); tga.CodeOf(err) != tga.SchemaViolation {
			t.Errorf("%s is null: %v", name, err)
		}
	}
}

// TestLaterVersionIsTold: a later version may have other members, and is not called damaged.
func TestLaterVersionIsTold(t *testing.T) {
	s := newStand(t, 1)
	whole := string(s.bundle(s.content(1)))
	later := strings.Replace(whole, `"version":"1",`, `"version":"2","more":1,`, 1)
	if _, err := s.verify([]byte(later)); tga.CodeOf(err) != tga.FormatTooNew {
		t.Errorf("a later version: %v", err)
	}
	none := strings.Replace(whole, `"version":"1",`, ``, 1)
	if _, err := s.verify([]byte(none)); tga.CodeOf(err) != tga.SchemaViolation {
		t.Errorf("no version: %v", err)
	}
}

// TestVerdict: the verdict is one word for the sentences, and the weakest one if there are several.
func TestVerdict(t *testing.T) {
	s := newStand(t, 2)
	all, part := s.bundle(s.content(s.tree.Size())), s.bundle(s.content(3))
	for _, c := range []struct {
		bundle []byte
		trust  Trust
		want   string
	}{
		{all, Trust{Key: s.key.Public}, Proved}, {part, Trust{Key: s.key.Public}, NotCovered},
		{all, Trust{}, OwnKey}, {part, Trust{}, OwnKey},
	} {
		rep, err := Verify(strings.NewReader(string(c.bundle)), c.trust)
		if err != nil || rep.Verdict() != c.want {
			t.Errorf("verdict %q, %v, want %q", rep.Verdict(), err, c.want)
		}
	}
}
