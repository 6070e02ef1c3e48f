package main

import (
	"bufio"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/config"
)

// TestQuestionsOfInit: a wrong answer is asked again, an empty one means the default, and a question that a
// flag answers is not asked.
func TestQuestionsOfInit(t *testing.T) {
	for _, x := range []struct {
		said            config.Answers
		input           string
		asked           int
		server, approve string
	}{
		{config.Answers{}, "\n\n", 2, "", config.ApproveAsk},
		{config.Answers{}, "nonsense\nfiles = npx -y x\nmaybe\nall\n", 4, "files", config.ApproveAll},
		{config.Answers{Approve: config.ApproveNone}, "web=https://h/mcp", 1, "web", config.ApproveNone},
		{config.Answers{Servers: []config.Server{{ID: "s"}}}, "none\n", 1, "s", config.ApproveNone},
	} {
		var out strings.Builder
		q := questions{bufio.NewReader(strings.NewReader(x.input)), &out}
		if err := q.fill(&x.said); err != nil {
			t.Errorf("%q: %v", x.input, err)
		}
		server := ""
		if len(x.said.Servers) > 0 {
			server = x.said.Servers[0].ID
		}
		if asked := strings.Count(out.String(), "> "); asked != x.asked || server != x.server || x.said.Approve != x.approve {
			t.Errorf("%q: %d questions, %+v\n%s", x.input, asked, x.said, out.String())
		}
	}
	// An input that ends does not lead to an endless loop.
	q := questions{bufio.NewReader(strings.NewReader("nonsense\n")), &strings.Builder{}}
	if err := q.fill(&config.Answers{}); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Error(err)
	}
}
