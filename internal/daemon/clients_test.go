package daemon

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestClientsWithoutALibrary runs the example clients against a real daemon: a call, and
// the same again, which is served and not sent.
func TestClientsWithoutALibrary(t *testing.T) {
	dir, err := filepath.Abs("../../examples/clients")
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, "")
	for _, x := range []struct {
		needs  string
		client []string
	}{
		{"curl", []string{"sh", "call.sh"}}, {"python3", []string{"python3", "call.py"}}, {"node", []string{"node", "call.mjs"}},
	} {
		t.Run(x.needs, func(t *testing.T) {
			serial.Program(t, x.needs)
			key := "order-" + x.needs
			for _, served := range []bool{false, true} {
				cmd := exec.Command(x.client[0], filepath.Join(dir, x.client[1]), b.socket, "pay", "charge", key, `{"amount":5}`)
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				var c wire.Call
				if err := json.Unmarshal(out, &c); err != nil {
					t.Fatalf("%s: %v", out, err)
				}
				// The number is beyond what a double holds, so the answer travels byte for byte.
				if c.State != tga.Completed.String() || c.Result != nil || string(c.ResultBase64) != `{"paid":9007199254740993,"text":"a<b>&"}` || c.ServedFrom.IsZero() == served {
					t.Errorf("answer %s", out)
				}
			}
			if n := b.tool.sends(key); n != 1 {
				t.Errorf("%d sends", n)
			}
		})
	}
}
