package daemon

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestProtocolDocumentListsEveryRoute, with its verbs, and no other.
func TestProtocolDocumentListsEveryRoute(t *testing.T) {
	text, err := os.ReadFile("../../docs/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, have []string
	for _, m := range regexp.MustCompile("(?m)^\\| `((?:GET|POST) [^`]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, m[1]+": "+strings.TrimSpace(m[2]))
	}
	for _, r := range routes {
		verbs := "any peer"
		if len(r.verbs) > 0 {
			var names []string
			for _, v := range r.verbs {
				names = append(names, string(v))
			}
			verbs = strings.Join(names, ", ")
		}
		have = append(have, r.method+" "+r.path+": "+verbs)
	}
	slices.Sort(listed)
	slices.Sort(have)
	if !slices.Equal(listed, have) {
		t.Errorf("docs/PROTOCOL.md lists\n%s\nthe daemon has\n%s", strings.Join(listed, "\n"), strings.Join(have, "\n"))
	}
}
