package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tgad/tgad/internal/modelserver"
	"github.com/tgad/tgad/internal/payments/journal"
)

// modelConfig is the part of a configuration that names the test's model server.
func modelConfig(url string) string { return providerConfig("local", url) }

func providerConfig(provider, url string) string {
	return fmt.Sprintf("\n[[model]]\nprovider = %q\ntype = \"openai\"\nurl = %q\nstream = true\n", provider, url)
}

// model starts a model server with a script and adds it to the configuration:
// model FILE [PROVIDER].
func model(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: model FILE [PROVIDER]")
	}
	provider := "local"
	if len(args) == 2 {
		provider = args[1]
	}
	script, err := modelserver.ReadScript([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	m, err := modelserver.Start(modelserver.Options{Script: script, ByConversation: true})
	ts.Check(err)
	ts.Defer(func() { ts.Check(m.Close()) })
	config := ts.MkAbs("tgad.toml")
	ts.Check(os.WriteFile(config, []byte(ts.ReadFile("tgad.toml")+providerConfig(provider, m.URL())), 0o640))
}

const payer = `apiVersion: ossa/v0.2.9
kind: Agent
metadata: {name: payer}
spec:
  role: You pay.
  llm: {provider: local, model: m1}
  tools:
    - {type: mcp, server: payments, name: charge}
`

// TestKilledAgentChargesOnceAndAsksOnce kills tgad agent with SIGKILL at random moments
// until the agent has finished. The journals of the model and of the tool server are the
// witnesses. $TGAD_KILLS is the number of messages, $TGAD_SEED the seed of the moments.
func TestKilledAgentChargesOnceAndAsksOnce(t *testing.T) {
	messages, seed := fromEnv(t, "TGAD_KILLS", 4), uint64(fromEnv(t, "TGAD_SEED", int(time.Now().UnixNano()%1e9)))
	t.Logf("TGAD_KILLS=%d TGAD_SEED=%d", messages, seed)
	moments := rand.New(rand.NewPCG(seed, 0))
	kills, requests := 0, 0
	for n := range messages {
		k, r := killAgent(t, moments, n)
		kills, requests = kills+k, requests+r
	}
	t.Logf("%d messages, %d kills, %d questions sent for %d", messages, kills, requests, 2*messages)
}

func killAgent(t *testing.T, moments *rand.Rand, n int) (kills, requests int) {
	t.Helper()
	dir := t.TempDir()
	m, err := modelserver.Start(modelserver.Options{
		Script: []modelserver.Answer{
			{ToolCalls: []modelserver.ToolCall{
				{ID: "a", Name: "charge", Arguments: fmt.Sprintf(`{"account":"a","amount":%d,"delay_ms":20}`, n+1)},
				{ID: "b", Name: "charge", Arguments: fmt.Sprintf(`{"account":"b","amount":%d,"delay_ms":20}`, n+1)},
			}, PauseMS: 5},
			{Text: "paid", PauseMS: 5},
		},
		ByConversation: true, Deduplicate: true, Journal: filepath.Join(dir, "model.journal"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	charges := filepath.Join(dir, "payments.journal")
	config, manifest := filepath.Join(dir, "tgad.toml"), filepath.Join(dir, "payer.yaml")
	for file, text := range map[string]string{config: testConfig(charges) + modelConfig(m.URL()), manifest: payer} {
		if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	id := uuid.Must(uuid.NewV7()).String()
	for ; ; kills++ {
		var out, errs bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, "tgad", "agent", "run", manifest, "--data", filepath.Join(dir, "data"), "--config", config,
			"--id", id, "--session", "s", "--message", "pay")
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		if kills < 12 { // then it may run to its end
			select {
			case err = <-done:
			case <-time.After(time.Duration(moments.Int64N(int64(400 * time.Millisecond)))):
				cancel()
				<-done
				continue
			}
		} else {
			err = <-done
		}
		cancel()
		if err != nil {
			t.Fatalf("message %d after %d kills: %v\n%s", n, kills, err, errs.String())
		}
		if got := strings.TrimSpace(out.String()); got != "paid" {
			t.Errorf("message %d after %d kills: answer %q", n, kills, got)
		}
		break
	}
	asked := m.Counts()
	if len(asked.ByKey) != 2 || asked.Asked != 2 {
		t.Errorf("message %d after %d kills: the model was asked %+v, want two different questions", n, kills, asked)
	}
	sum, err := journal.Read(charges)
	if err != nil {
		t.Fatal(err)
	}
	if total := sum.Total(); total.Charges != 2 {
		t.Errorf("message %d after %d kills: %+v, want two charges", n, kills, total)
	}
	return kills, asked.Requests
}
