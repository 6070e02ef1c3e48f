package manifest_test

import (
	"errors"
	"testing"

	"github.com/tgad/tgad/internal/turn/manifest"
)

// FuzzRead: any text becomes an agent with a name, or an error that lists placed
// mistakes; and reading it again says the same.
func FuzzRead(f *testing.F) {
	for _, dir := range []string{"good", "broken"} {
		for _, file := range corpus(f, dir) {
			f.Add(file)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		agent, report, err := manifest.Read(raw)
		if err != nil {
			var all *manifest.Error
			if agent != nil || !errors.As(err, &all) || len(all.Mistakes) == 0 {
				t.Fatalf("agent %v, error %v", agent, err)
			}
			for _, m := range all.Mistakes {
				if m.Line < 1 || m.Column < 1 || m.Code == "" {
					t.Fatalf("mistake %+v has no place or no code", m)
				}
			}
			return
		}
		if agent.Name == "" {
			t.Fatal("an agent without a name")
		}
		again, second, err := manifest.Read(raw)
		if err != nil || again.Name != agent.Name || len(second.Taken) != len(report.Taken) || len(second.Ignored) != len(report.Ignored) {
			t.Fatalf("read twice: %v", err)
		}
	})
}
