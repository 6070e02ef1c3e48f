package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// startRedacting runs a daemon that stores neither the arguments nor the answer of charge on remote
// that the pointers name.
func startRedacting(t *testing.T, rules string) *bench {
	t.Helper()
	b := setup(t, "")
	key := filepath.Join(b.dir, "redaction.key")
	if err := os.WriteFile(key, []byte("a secret of these tests, which is long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.config += fmt.Sprintf("\n[redaction]\nkey_file = %q\n\n[[tool]]\nserver = \"remote\"\nname = \"charge\"\n[tool.redact]\n%s\n", key, rules)
	b.start()
	return b
}

// appends are both ways by which a peer's own artifacts reach the log.
var appends = map[string]func(b *bench, trace tga.ID, m wire.AppendRequest) error{
	"append": func(b *bench, trace tga.ID, m wire.AppendRequest) error {
		_, err := b.client.Append(b.t.Context(), trace, m)
		return err
	},
	"batch": func(b *bench, trace tga.ID, m wire.AppendRequest) error {
		all, err := b.client.AppendBatch(b.t.Context(), []wire.BatchItem{{TraceID: trace, AppendRequest: m}})
		if err == nil && all[0].Problem != nil {
			err = tga.Errorf(all[0].Problem.Code, "%s", all[0].Problem.Detail)
		}
		return err
	},
}

// TestPeersArtifactsBringNoSecret appends what the rules keep out of the log: refused on both ways,
// and the store is as it was. The same artifacts pass where no rule names what is in them.
func TestPeersArtifactsBringNoSecret(t *testing.T) {
	for name, send := range appends {
		t.Run(name+", arguments", func(t *testing.T) {
			b := startRedacting(t, `args = ["/amount"]`)
			c := mintChain(t, "k", nil)
			lease := b.lease(c.trace)
			before := b.everything()
			wantCode(t, send(b, c.trace, c.begin(lease)), tga.ValidationError)
			if b.everything() != before {
				t.Error("the refused request changed the store")
			}
		})
		t.Run(name+", answer", func(t *testing.T) {
			b := startRedacting(t, `result = ["/paid"]`)
			c := mintChain(t, "k", nil)
			lease := b.lease(c.trace)
			if err := send(b, c.trace, c.begin(lease)); err != nil {
				t.Fatal(err)
			}
			before := b.everything()
			wantCode(t, send(b, c.trace, c.end(lease)), tga.ValidationError)
			if b.everything() != before {
				t.Error("the refused answer changed the store")
			}
		})
		t.Run(name+", neither", func(t *testing.T) {
			b := startRedacting(t, `args = ["/card"]`+"\n"+`result = ["/token"]`)
			c := mintChain(t, "k", nil)
			lease := b.lease(c.trace)
			for _, m := range []wire.AppendRequest{c.begin(lease), c.end(lease)} {
				if err := send(b, c.trace, m); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
