package setup

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
)

// FuzzInstall: whatever a file holds, a client reads it after install and uninstall as before. A
// second install changes nothing.
func FuzzInstall(f *testing.F) {
	for _, x := range forms {
		f.Add([]byte(x.before), x.place.TOML)
		f.Add([]byte(x.want), x.place.TOML)
	}
	f.Fuzz(func(t *testing.T, raw []byte, isTOML bool) {
		p := mcpJSON
		if isTOML {
			p = codex
		}
		after, changes, err := Install(raw, p, front, nil)
		if err != nil {
			return
		}
		ours := false
		for _, c := range changes {
			ours = ours || c.Why == behind
		}
		again, changes, err := Install(after, p, front, nil)
		if err != nil || !bytes.Equal(again, after) {
			t.Fatalf("the second install makes\n%s\nof\n%s\n%v", again, after, err)
		}
		for _, c := range changes {
			if c.After != nil {
				t.Fatalf("the second install changes %+v", c)
			}
		}
		back, _, err := Uninstall(after, p, front, nil)
		if err != nil {
			t.Fatalf("%s\n%v", after, err)
		}
		was, ok := read(raw, p)
		if ours || !ok {
			return // some server ran behind tgad before
		}
		if now, ok := read(back, p); !ok || !reflect.DeepEqual(withArgs(now), withArgs(was)) {
			t.Fatalf("uninstall makes\n%s\nof\n%s", back, raw)
		}
	})
}

// read returns what a client reads, and false if it cannot read the file.
func read(raw []byte, p Place) (v map[string]any, ok bool) {
	if p.TOML {
		return v, toml.Unmarshal(raw, &v) == nil
	}
	standard, err := hujson.Standardize(bytes.Clone(raw))
	return v, err == nil && json.Unmarshal(standard, &v) == nil
}
