package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/payments/journal"
	"github.com/tgad/tgad/internal/workspace"
)

// TestKilledShimHasASnapshotBeforeEachCall kills tgad mcp with SIGKILL at random moments of calls that
// change its workspace. At any moment: each charge of the tool server has a record with a snapshot before
// it, nothing in the directory was taken back, and the state before each call can be restored.
func TestKilledShimHasASnapshotBeforeEachCall(t *testing.T) {
	t.Parallel()
	seed := uint64(fromEnv(t, "TGAD_SEED", int(time.Now().UnixNano()%1e9)))
	t.Logf("TGAD_SEED=%d", seed)
	moments := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	charges := filepath.Join(work, "charges")
	const kills = 6
	for n := range kills + 1 {
		cmd := exec.CommandContext(t.Context(), "tgad", "mcp", "--data", filepath.Join(dir, "data"), "--server-id", "payments", "--workspace", work,
			"--", "tgad-lab", "payments", "--journal", charges)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		say := func(line string) {
			if _, err := io.WriteString(in, line+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		if !lines.Scan() {
			t.Fatalf("start %d: no answer", n)
		}
		say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		say(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{"account":"a","amount":%d,"delay_ms":5}}}`, n+1))
		if n < kills {
			time.Sleep(time.Duration(moments.Int64N(int64(120 * time.Millisecond)))) // the moment that is tried
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		} else if !lines.Scan() || !strings.Contains(lines.Text(), `"charge"`) {
			t.Errorf("the last call: %s", lines.Text())
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); (err != nil) != (n < kills) {
			t.Errorf("start %d: %v", n, err)
		}
	}
	k, err := workspace.Open(t.Context(), workspace.Options{Dir: work, Known: true})
	if err != nil {
		t.Fatal(err)
	}
	all, err := k.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum, err := journal.Read(charges)
	if err != nil {
		t.Fatal(err)
	}
	made := int(sum.Total().Charges)
	t.Logf("%d charges, %d records", made, len(all))
	if made < 1 || made > len(all) || len(all) > kills+1 {
		t.Errorf("%d charges and %d records of %d calls", made, len(all), kills+1)
	}
	traces := map[string]bool{}
	for _, r := range all {
		traces[r.TraceID] = true
		if _, _, err := k.Diff(t.Context(), r); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if len(traces) != len(all) {
		t.Errorf("%d records of %d calls", len(all), len(traces))
	}
	plan, err := k.Plan(t.Context(), "1")
	if err == nil {
		_, err = k.Restore(t.Context(), plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	if sum, err = journal.Read(charges); err != nil || sum.Total().Charges != 0 {
		t.Errorf("back to before the first call: %+v, %v", sum.Total(), err)
	}
}
