package assemble_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/assemble"
)

// TestNoMistakeRepeatsASecret: an address that is refused may have a password. The error goes to a terminal, and a reload that
// is refused to the daemon's log.
func TestNoMistakeRepeatsASecret(t *testing.T) {
	const canary = "c4narY-77"
	const url = "htps://ann:" + canary + "@h/?access_token=" + canary
	for key, table := range map[string]string{
		"http":     "[[server]]\nid = \"s\"\ntype = \"http\"\nurl = %q\n",
		"mcp":      "[[server]]\nid = \"s\"\ntype = \"mcp-url\"\nurl = %q\n",
		"grpc":     "[[server]]\nid = \"s\"\ntype = \"grpc\"\nurl = %q\n",
		"model":    "[[model]]\nprovider = \"p\"\ntype = \"openai\"\nurl = %q\n",
		"verifier": "[[verifier]]\nresource_type = \"r\"\ntype = \"http\"\nurl = %q\n",
		"github":   "[[verifier]]\nresource_type = \"r\"\ntype = \"github\"\nbase_url = %q\n",
		"dsn":      "[[verifier]]\nresource_type = \"r\"\ntype = \"postgres\"\ndsn = %q\nquery = \"select 1\"\n",
		"prober":   "[[server]]\nid = \"s\"\ntype = \"external\"\n[[prober]]\nserver = \"s\"\ntool = \"t\"\ntype = \"http\"\nurl = %q\n",
		"events":   "[agent]\nevents_url = %q\n",
		"notify":   "[[notify]]\nid = \"n\"\ntype = \"webhook\"\nurl = %q\n",
		"ui":       "[[notify]]\nid = \"n\"\ntype = \"command\"\ncommand = [\"x\"]\nui = %q\n",
		"audit":    "[[audit]]\nid = \"n\"\ntype = \"webhook\"\nurl = %q\n",
		"syslog":   "[[audit]]\nid = \"n\"\ntype = \"syslog\"\naddress = %q\n",
		"place":    "[evidence]\nkey_file = \"k\"\n[[evidence.place]]\nurl = %q\n",
		"endpoint": "[backup]\nto = \"s3://b/p\"\nendpoint = %q\n",
		"store":    "[store]\nurl = %q\n",
	} {
		_, err := assemble.Parse("c.toml", fmt.Appendf(nil, table, url))
		if err == nil && key != "grpc" && key != "dsn" { // these are looked at when they are used
			t.Errorf("%s: an address with this scheme is taken", key)
		}
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
