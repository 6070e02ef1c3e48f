package assemble

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestCallThatTheDaemonDoesNotSend: the error says why the daemon does not send the call: the server is
// external, or no server is configured. In both cases an executor sends it.
func TestCallThatTheDaemonDoesNotSend(t *testing.T) {
	c, err := Parse("", []byte("[[server]]\nid = \"shop\"\ntype = \"external\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	live, err := Start(c, Options{Store: t.TempDir(), Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := live.Close(); err != nil {
			t.Error(err)
		}
	}()
	for server, want := range map[string]string{"shop": "external", "shap": "no tool server of that name"} {
		call := runtime.Call{Server: server, Tool: "ship"}
		if err := live.Check(t.Context(), call); tga.CodeOf(err) != tga.NotFound || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want NOT_FOUND: %s", server, err, want)
		}
		call.Remote = true
		if err := live.Check(t.Context(), call); err != nil {
			t.Errorf("%s, sent by its executor: %v", server, err)
		}
	}
}
