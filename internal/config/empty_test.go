package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/config"
)

// TestEmptyIsNotEverything: a key whose absence means all is refused with an empty value. The keys are those whose text
// says so.
func TestEmptyIsNotEverything(t *testing.T) {
	tables := map[string]string{
		"rule":           "[[rule]]\ndecision = \"APPROVE\"\n",
		"retention.rule": "[[retention.rule]]\nerase_after = \"48h\"\ndrop = true\n",
		"notify":         "[[notify]]\nid = \"n\"\ntype = \"command\"\ncommand = [\"x\"]\n",
		"server":         "[[server]]\nid = \"s\"\ntype = \"mcp-url\"\nurl = \"https://h/\"\n",
		"store":          "[store]\nurl = \"postgres://u@h/d\"\n",

		"gateway.identity":       "[[gateway.identity]]\nname = \"i\"\nkey_file = \"k\"\n",
		"gateway.identity.limit": "[[gateway.identity]]\nname = \"i\"\nkey_file = \"k\"\n[[gateway.identity.limit]]\ncalls = 1\nper = \"1m\"\n",
	}
	besides := map[string]bool{ // their texts say it of the keys beside another one
		"retention.rule.server": true, "retention.rule.tool": true, "retention.rule.states": true, "retention.rule.classes": true, "notify.server": true, "notify.tool": true,
	}
	walked := 0
	for _, k := range config.Keys() {
		text := strings.ToLower(k.Text)
		if !besides[k.Path] && !strings.Contains(text, "absent: all") && !strings.Contains(text, "absent: any") && !strings.Contains(text, "absent: every") && !strings.Contains(text, "without it all") {
			continue
		}
		walked++
		at := strings.LastIndexByte(k.Path, '.')
		table, ok := tables[k.Path[:at]]
		if !ok {
			t.Errorf("no table has %s", k.Path)
			continue
		}
		if k.Path == "server.services" {
			table = "[[server]]\nid = \"s\"\ntype = \"grpc\"\nurl = \"h:1\"\n"
		}
		empty := `""`
		if k.Form == config.FormStrings {
			empty = "[]"
		}
		file := table + k.Path[at+1:] + " = " + empty + "\n"
		if _, err := parsed(t, "", []byte(table)); err != nil {
			t.Errorf("%s: without it: %v", k.Path, err)
		}
		line := fmt.Sprintf("%d:1: ", strings.Count(file, "\n"))
		if _, err := parsed(t, "", []byte(file)); err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%s = %s: %v, want a mistake at %s", k.Path, empty, err, line)
		}
	}
	if walked < 17 {
		t.Errorf("only %d keys were walked", walked)
	}
}
