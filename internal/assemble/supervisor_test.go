package assemble

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func ringOf(t *testing.T, o capability.Options) *capability.Ring {
	t.Helper()
	r, err := capability.Open(filepath.Join(t.TempDir(), "private"), "remote", "tgad", o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func keySet(t *testing.T) []byte {
	t.Helper()
	set, err := ringOf(t, capability.Options{}).JWKS()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestSupervisorThatCannotBeCheckedIsRefused: the daemon does not start if a supervisor has no peers, no
// keys or no issuer, if two have one uid, or if the key file of one has no key.
func TestSupervisorThatCannotBeCheckedIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{"keys": keySet(t), "empty": []byte(`{"keys":[]}`), "broken": []byte(`{`)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = "[[supervisor]]\nuid = [7]\nissuer = \"remote\"\nkeys_file = \"keys\"\n"
	for _, x := range []struct{ text, word string }{
		{good, ""},
		{strings.Replace(good, "[7]", "[]", 1), "uid"},
		{good + good, "uid 7"},
		{strings.Replace(good, `"remote"`, `""`, 1), "issuer"},
		{strings.Replace(good, `"keys"`, `""`, 1), "keys_file"},
		{good + "audience = \"a b\"\n", "audience"},
		{good + "skew = \"10m\"\n", ""},
		{good + "skew = \"601s\"\n", "skew"},
		{good + "skew = \"-1s\"\n", "skew"},
		{strings.Replace(good, `"keys"`, `"empty"`, 1), "Ed25519"},
		{strings.Replace(good, `"keys"`, `"broken"`, 1), "keys of supervisor"},
		{strings.Replace(good, `"keys"`, `"absent"`, 1), "keys of supervisor"},
	} {
		c, err := Parse(filepath.Join(dir, "tgad.toml"), []byte(x.text))
		if err == nil {
			var tools *Tools
			if tools, err = Build(c, Options{Store: t.TempDir(), Logger: discard}); err == nil {
				if err := tools.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		if (err == nil) != (x.word == "") || err != nil && !strings.Contains(err.Error(), x.word) {
			t.Errorf("%s: %v, want %q", x.text, err, x.word)
		}
	}
}

// TestSkewIsWhatIsWritten: a skew of 0s means zero, and a skew that is left out means the default, both for
// the daemon's own keys and for those of a remote supervisor.
func TestSkewIsWhatIsWritten(t *testing.T) {
	now := time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	remote := ringOf(t, capability.Options{Clock: clock})
	dir := t.TempDir()
	set, err := remote.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "keys"), set, 0o600); err != nil {
		t.Fatal(err)
	}
	g := runtime.Grant{TraceID: tga.ID{6: 0x70, 8: 0x80}, PlanID: tga.ID{6: 0x70, 8: 0x80, 15: 1}, Server: "s", Tool: "t", ArgsDigest: tga.Sum(nil)}
	for _, x := range []struct {
		line string
		skew time.Duration
	}{{"", capability.DefaultSkew}, {"skew = \"0s\"\n", 0}, {"skew = \"5s\"\n", 5 * time.Second}} {
		text := fmt.Sprintf("[[supervisor]]\nuid = [7]\nissuer = \"remote\"\nkeys_file = \"keys\"\n%s[capability]\nkey_file = \"own\"\n%s", x.line, x.line)
		c, err := Parse(filepath.Join(dir, "tgad.toml"), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		at := now
		tools, err := Build(c, Options{Store: t.TempDir(), Logger: discard, Clock: func() time.Time { return at }})
		if err != nil {
			t.Fatal(err)
		}
		trust := tools.Options().Trust
		own, err := trust.Capabilities.Mint(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := remote.Mint(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		end := now.Add(capability.DefaultLifetime)
		for _, late := range []bool{false, true} {
			if at = end.Add(x.skew - 1); late {
				at = end.Add(x.skew)
			}
			for name, err := range map[string]error{
				"own": trust.Capabilities.Check(t.Context(), own, g), "remote": trust.Supervisor("uid:7").Check(t.Context(), theirs, g),
			} {
				if late != errors.Is(err, tga.CapabilityInvalid) || !late && err != nil {
					t.Errorf("%s with %q, late %v: %v", name, x.line, late, err)
				}
			}
		}
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
	}
}
