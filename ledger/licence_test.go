package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

func TestTextForms(t *testing.T) {
	// Each name is read back as its value, and nothing else is read.
	check := func(what string, n int, text func(int) string, parse func(string) (int, error)) {
		named := 0
		for i := range n {
			s := text(i)
			if s == "" {
				continue
			}
			named++
			if got, err := parse(s); err != nil || got != i {
				t.Errorf("%s %q: got %d, %v, want %d", what, s, got, err, i)
			}
		}
		if named == 0 {
			t.Errorf("%s has no names", what)
		}
		for _, s := range []string{"", " ", "Park", "unheard_of"} {
			if _, err := parse(s); !errors.Is(err, tga.ValidationError) {
				t.Errorf("%s %q: %v", what, s, err)
			}
		}
	}
	check("status", 256, func(i int) string { return Status(i).String() }, func(s string) (int, error) { v, err := ParseStatus(s); return int(v), err })
	check("class", 256, func(i int) string { return Class(i).String() }, func(s string) (int, error) { v, err := ParseClass(s); return int(v), err })
	check("licence", 256, func(i int) string { return LicenceKind(i).String() }, func(s string) (int, error) { v, err := ParseLicence(s); return int(v), err })
	check("holder", 256, func(i int) string { return Liveness(i).String() }, func(s string) (int, error) { v, err := ParseLiveness(s); return int(v), err })
	check("profile", 256, func(i int) string { return Profile(i).String() }, func(s string) (int, error) { v, err := ParseProfile(s); return int(v), err })
	check("action", 256, func(i int) string { return Action(i).String() }, func(s string) (int, error) { v, err := ParseAction(s); return int(v), err })
	check("answer", 256, func(i int) string { return ProbeAnswer(i).String() }, func(s string) (int, error) { v, err := ParseProbeAnswer(s); return int(v), err })
}

func TestLicenceValidation(t *testing.T) {
	for _, c := range []struct {
		l     Licence
		class string
		ok    bool
	}{
		{Licence{}, "write", true},
		{Licence{}, "", true},
		{Licence{}, "other", false},
		{Licence{Kind: ReadOnly}, "read", true},
		{Licence{Kind: ReadOnly}, "write", false},
		{Licence{Kind: ReadOnly}, "", false},
		{Licence{Kind: DedupeKey}, "write", false},
		{Licence{Kind: DedupeKey, Window: DefaultMargin}, "write", false},
		{Licence{Kind: DedupeKey, Window: DefaultMargin + 1}, "write", true},
		{Licence{Kind: DedupeKey, Window: time.Second, Margin: time.Second}, "write", false},
		{Licence{Kind: DedupeKey, Window: time.Second, Margin: time.Millisecond}, "write", true},
		{Licence{Kind: DedupeKey, Window: -1}, "write", false},
		{Licence{Kind: DedupeKey, Window: time.Hour, MaxInFlight: 1}, "write", false},
		{Licence{Kind: DedupeArgs}, "write", true},
		{Licence{Kind: DedupeArgs, Window: time.Hour}, "write", false},
		{Licence{Kind: Park, Margin: time.Hour}, "write", false},
		{Licence{Kind: Probe, MaxInFlight: time.Second}, "write", true},
		{Licence{Kind: Probe, MaxInFlight: -time.Second}, "write", false},
		{Licence{Kind: ReadOnly + 1}, "read", false},
	} {
		if err := c.l.Validate(c.class); (err == nil) != c.ok || err != nil && !errors.Is(err, tga.ValidationError) {
			t.Errorf("%+v for %q: %v", c.l, c.class, err)
		}
	}
	for kind := Park; kind <= ReadOnly; kind++ {
		for class := ClassSuccess; class <= ClassNotSent; class++ {
			for _, doubtful := range []bool{false, true} {
				err := Licence{Kind: kind}.ValidateOutcome(class, doubtful)
				refused := class == ClassNotSent || class == ClassRetryable && doubtful && (kind == Park || kind == Probe)
				if (err != nil) != refused {
					t.Errorf("%v, %v, doubtful %v: %v", kind, class, doubtful, err)
				}
			}
		}
	}
}
