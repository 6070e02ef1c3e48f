package gateway

import (
	"context"
	"crypto/x509"
	"log/slog"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/subject"
)

// runTokenGate is a gateway over HTTP with a tool server that gets its clients' tokens.
func runTokenGate(ctx context.Context, dir string) (err error) {
	log := slog.New(slog.DiscardHandler)
	c, stop, err := fronttest.ProcessLog(ctx, dir, log)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }() // an error does not matter: the process is killed
	k := fronttest.NewKiller(dir)
	s, err := mcpfront.New(mcpfront.Options{Server: "far", URL: fronttest.Far(), ForwardAuth: subject.Authorization, Log: k.Log(c), State: dir + "/state", Logger: log})
	if err != nil {
		return err
	}
	g, err := NewGate([]Behind{{Shim: s, Names: names.Names{Prefix: "far__"}}}, GateOptions{Logger: log})
	if err != nil {
		return err
	}
	d := &Door{Who: func(string, *x509.Certificate) string { return "" }, Passes: true, Gates: map[string]*Gate{"": g}}
	return fronttest.ServeAt(ctx, dir, func(life context.Context) fronttest.Lobby { return k.Lobby(d.lobby(life)) })
}

// TestKilledGatewayKeepsUsersApart kills a gateway with SIGKILL in a call with a token. The repeat with the same token
// runs nothing twice, and the same call with another token is a new call.
func TestKilledGatewayKeepsUsersApart(t *testing.T) {
	points := []string{"before send", "before delivery", "writing"}
	if fronttest.EveryKill() {
		points = fronttest.KillPoints
	}
	for _, point := range points {
		g := fronttest.Guard(t, "tok-alic", "tok-bobb")
		r := fronttest.NewRig(t, true)
		r.Verb, r.Far, r.Victim = "tokens", g.URL, point+": tokens"
		const args = `{"killed":true}`
		call := func(token, meta string) (string, int) {
			return r.CallOver("far__charge", args, meta, "Authorization", "Bearer "+token)
		}
		answer, tries := call("tok-alic", "")
		if tries < 2 && point != "delivered" {
			t.Errorf("%s: the client has its answer of a gateway that was killed", point)
		}
		ran := g.Runs()
		if ran > 1 || ran == 0 && !strings.Contains(answer, "OUTCOME UNKNOWN") {
			t.Errorf("%s: %d runs: %s", point, ran, answer)
		}
		answer, _ = call("tok-bobb", "")
		fronttest.Has(t, answer, "paid by bobb")
		fronttest.Lacks(t, answer, "alic", "replayed")
		if n := g.Runs() - ran; n != 1 {
			t.Errorf("%s: somebody else's call ran %d times", point, n)
		}
	}
}
