package config_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/schemas/tga"
)

// TestTemplateIsAConfiguration: for all answers the template is a valid configuration that means what was
// answered, as it is, and also with every commented default made active.
func TestTemplateIsAConfiguration(t *testing.T) {
	shown := regexp.MustCompile(`(?m)^# ([a-z_]+ = \S+) +# `)
	servers := []config.Server{
		{ID: "a", Type: config.MCPCommand, Command: []string{"x", "with \"blanks\" \\"}},
		{ID: "b", Type: config.MCPURL, URL: "https://h/mcp"}, {ID: "c", Type: config.HTTP, URL: "http://127.0.0.1:1/t"},
	}
	for approve, want := range map[string]string{config.ApproveAll: tga.Approve, config.ApproveAsk: tga.NeedsApproval, config.ApproveNone: tga.Deny} {
		for n := range len(servers) + 1 {
			raw := config.Template(config.Answers{Store: "01936a8b-4c2d-7000-8000-000000000001", Servers: servers[:n], Approve: approve})
			c, err := parsed(t, "c.toml", raw)
			if err != nil {
				t.Fatalf("%s\n%v", raw, err)
			}
			if c.Store.ID == "" || len(c.Servers) != n || n > 0 && c.Servers[0].Command[1] != servers[0].Command[1] || n > 2 && c.Servers[2].URL != servers[2].URL {
				t.Errorf("%+v %+v", c.Store, c.Servers)
			}
			for risk, want := range map[string]string{tga.RiskWrite: want, tga.RiskRead: map[string]string{config.ApproveNone: tga.Deny}[approve]} {
				s, err := c.Supervisor()
				if err != nil {
					t.Fatal(err)
				}
				if want == "" {
					want = tga.Approve
				}
				v, err := s.Decide(t.Context(), &tga.Artifact{Type: tga.RequestType, Request: &tga.ActionRequest{RiskLevel: risk, Proposal: tga.Proposal{ToolServer: "a", ToolName: "t"}}})
				if err != nil || v.Decision != want {
					t.Errorf("%s: a call of risk %s is decided %s %v, want %s", approve, risk, v.Decision, err, want)
				}
			}
			if found := len(shown.FindAll(raw, -1)); found < 20 {
				t.Errorf("%d defaults in\n%s", found, raw)
			}
			open := shown.ReplaceAll(raw, []byte("$1 # "))
			with, err := parsed(t, "c.toml", open)
			if err != nil {
				t.Fatalf("%s\n%v", open, err)
			}
			if with.Limits != c.Limits {
				t.Errorf("the limits that are shown are %+v, those that hold %+v", with.Limits, c.Limits)
			}
			for line := range strings.Lines(string(raw)) {
				if n := len([]rune(line)); strings.HasPrefix(line, "#") && n > 250 {
					t.Errorf("a line of %d characters: %s", n, line)
				}
			}
		}
	}
}
