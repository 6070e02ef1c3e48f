//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mcpShow is the scenario of an MCP client, without and with "tgad mcp --" in its configuration.
type mcpShow struct {
	*show
	seeds *rand.Rand
}

// strikeAt is one kill: the victim, and the point of the call at which the till is then.
type strikeAt struct{ victim, point string }

// RunMCP runs the scenario mcp: the same client with the same tool server and the same
// kills, first with its configuration as it is, then with tgad mcp in front of the command.
// The witness is the journal that the tool server writes.
func RunMCP(ctx context.Context, o Options) (failed int, err error) {
	start := time.Now()
	s := &mcpShow{show: &show{printer: printer{w: o.Out, json: o.JSON, colour: o.Colour}, Options: o}, seeds: rand.New(rand.NewPCG(o.Seed, 3))}
	if err = s.makeDir("mcp"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.dropDir()) }()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	s.text("%s", s.bold("tgad demo --scenario mcp"))
	s.text("An MCP client, its tool server and kill -9, before and after one word.")
	s.text("Charges are counted in the tool server's own journal.")
	for _, part := range []func(context.Context) error{s.bare, s.oneWord, s.attested} {
		if err := part(ctx); err != nil {
			return s.failed(), err
		}
	}
	s.summary(time.Since(start))
	return s.failed(), nil
}

// plan draws the kills. The first one is at a point where a repeat is a second charge.
func (s *mcpShow) plan(victims ...string) []strikeAt {
	var all []strikeAt
	for _, v := range victims {
		all = append(all, strikeAt{v, "charged"}, strikeAt{v, "received"})
	}
	s.seeds.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, k := range all {
		if k.point == "charged" {
			all[0], all[i] = all[i], all[0]
			break
		}
	}
	if s.Points > 0 && s.Points < len(all) {
		all = all[:s.Points]
	}
	return all
}

// stand is one client with its tool server and their files.
type stand struct {
	s             *mcpShow
	name          string
	client        *mcpClient
	journal, hold string
	log           *os.File
}

// sold is what became of one order.
type sold struct {
	order    string
	at       strikeAt
	charges  int
	answer   string
	tries    int
	received int
}

func (s *mcpShow) newStand(name string, mcp, till []string) (*stand, error) {
	dir := filepath.Join(s.dir, name)
	st := &stand{s: s, name: name, journal: filepath.Join(dir, "till.journal"), hold: filepath.Join(dir, "hold")}
	if err := os.MkdirAll(st.hold, 0o750); err != nil {
		return nil, err
	}
	var err error
	if st.log, err = os.OpenFile(filepath.Join(dir, "stderr"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640); err != nil {
		return nil, err
	}
	command := append(append(mcp, s.Lab, "till", "--journal", st.journal, "--hold", st.hold), till...)
	st.client = &mcpClient{command: command, env: []string{"TGAD_DATA=" + st.data(), "TGAD_SOCKET="}, stderr: st.log}
	return st, nil
}

func (st *stand) data() string { return filepath.Join(st.s.dir, st.name, "store") }

func (st *stand) close() error {
	st.client.end()
	return st.log.Close()
}

// sell makes a call for each kill of the plan, kills, and counts the charges.
func (st *stand) sell(ctx context.Context, plan []strikeAt) ([]sold, error) {
	var all []sold
	for i, k := range plan {
		order := fmt.Sprintf("order-%d", i+1)
		v, err := st.strike(ctx, order, k)
		if err != nil {
			return all, err
		}
		what := "answered"
		if unknown(v.answer) {
			what = "told that the outcome is unknown"
		}
		st.s.step(order, "kill -9 of %s, %s\n%s after %s; %s", k.victim, points[k.point], what, times(v.tries, "try", "tries"), times(v.charges, "charge", "charges"))
		all = append(all, v)
	}
	return all, nil
}

var points = map[string]string{"received": "received, not charged", "charged": "charged, not answered"}

func times(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// strike makes one call, and kills the victim when the till has reached the point.
func (st *stand) strike(ctx context.Context, order string, k strikeAt) (sold, error) {
	at := filepath.Join(st.hold, order+"."+k.point)
	if err := os.WriteFile(at, nil, 0o640); err != nil {
		return sold{}, err
	}
	// Connect before waiting for the point, so that the process to kill is known.
	if st.client.cmd == nil {
		if err := st.client.start(ctx); err != nil {
			return sold{}, err
		}
	}
	client := st.client.pid()
	struck := make(chan error, 1)
	waiting, over := context.WithCancel(ctx)
	defer over()
	go func() { struck <- killAt(waiting, at, k.victim, client) }()
	answer, tries, err := st.client.call(ctx, order)
	over() // after the answer the till will not reach the point any more
	if err := errors.Join(err, <-struck); err != nil {
		return sold{}, fmt.Errorf("%s, %s, to be killed %s, was answered %q: %w", order, k.victim, k.point, answer, err)
	}
	v := sold{order: order, at: k, answer: answer, tries: tries}
	if v.charges, err = st.count("charged", order); err == nil {
		v.received, err = st.count("received", order)
	}
	return v, err
}

func (st *stand) count(what, order string) (int, error) {
	return salesOf(st.journal, func(s sale) bool { return s.What == what && s.Order == order })
}

// killAt waits until the till has stopped and kills. client is what the client started.
func killAt(ctx context.Context, at, victim string, client int) error {
	for ctx.Err() == nil {
		found, err := filepath.Glob(at + ".[0-9]*")
		if err != nil {
			return err
		}
		if len(found) == 0 {
			time.Sleep(200 * time.Microsecond)
			continue
		}
		till, err := strconv.Atoi(strings.TrimPrefix(found[0], at+"."))
		if err != nil {
			return err
		}
		for who, pid := range map[string]int{theTill: till, theShim: client} {
			if victim == who || victim == both {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					return err // a process that is already gone is fine: a till dies with its shim
				}
			}
		}
		return nil
	}
	return errNotHeld
}

// Victims.
const (
	theTill = "the tool server"
	theShim = "tgad mcp"
	both    = "both"
)

// bare is part 1: the configuration as it is.
func (s *mcpShow) bare(ctx context.Context) error {
	s.title("The client's configuration as it is")
	s.step("command", "till")
	st, err := s.newStand("bare", nil, nil)
	if err != nil {
		return err
	}
	all, err := st.sell(ctx, s.plan(theTill))
	if err := errors.Join(err, st.close()); err != nil {
		return err
	}
	killed, twice := 0, 0
	for _, v := range all {
		if v.at.point == "charged" {
			killed++
		}
		if v.charges == 2 {
			twice++
		}
	}
	s.claim(killed > 0 && twice == killed, "each order whose answer was lost was charged twice", "%d of %d", twice, killed)
	return nil
}

// oneWord is part 2: the same configuration with tgad mcp in front.
func (s *mcpShow) oneWord(ctx context.Context) error {
	s.title("One word added")
	s.step("command", "tgad mcp -- till")
	st, err := s.newStand("word", []string{s.Exe, "mcp", "--"}, nil)
	if err != nil {
		return err
	}
	defer st.close()
	all, err := st.sell(ctx, s.plan(theTill, theShim, both))
	if err != nil {
		return err
	}
	most, sends, doubts, lost := 0, 0, 0, 0
	for _, v := range all {
		most, sends = max(most, v.charges), max(sends, v.received)
		switch {
		case unknown(v.answer):
			doubts++
		case v.charges != 1:
			lost++
		}
	}
	s.claim(most == 1 && sends == 1, "no order was charged twice, none was even sent twice", "%d charges, %d sends of one order", most, sends)
	s.claim(lost == 0, "each call has its charge, or was told that nobody knows", "%d have neither", lost)
	// tgad's own read-only tools say it too, to the same kind of client.
	look := &mcpClient{command: []string{s.Exe, "mcp", "serve"}, env: st.client.env, stderr: st.log}
	defer look.end()
	if err := look.start(ctx); err != nil {
		return err
	}
	out, err := look.ask("tools/call", map[string]any{"name": "in_doubt", "arguments": struct{}{}})
	if err != nil {
		return err
	}
	listed := strings.Count(string(out.Result), `"tool_name":"charge"`)
	s.step("tgad", "mcp serve, tool in_doubt: %s", times(listed, "call", "calls"))
	s.claim(listed == doubts, "what nobody knows is listed for people to settle", "%d told, %d listed", doubts, listed)
	return nil
}

// attestedConfig is what the operator attests about the till.
const attestedConfig = `allow_all = true

# The till charges once per key.
[[server]]
id = "till"
type = "external"

[[tool]]
server = "till"
name = "charge"
licence = "dedupe_key"
window = "24h"
`

// attested is part 3: the tool honours keys, and its operator says so.
func (s *mcpShow) attested(ctx context.Context) error {
	s.title("The tool charges once per key, and its operator says so")
	config := filepath.Join(s.dir, "till.toml")
	if err := os.WriteFile(config, []byte(attestedConfig), 0o640); err != nil {
		return err
	}
	s.step("command", "tgad mcp --config till.toml --server-id till -- till --keys")
	st, err := s.newStand("attested", []string{s.Exe, "mcp", "--config", config, "--server-id", "till", "--"}, []string{"--keys"})
	if err != nil {
		return err
	}
	defer st.close()
	all, err := st.sell(ctx, s.plan(theTill, theShim, both))
	if err != nil {
		return err
	}
	once, answered := 0, 0
	for _, v := range all {
		if v.charges == 1 {
			once++
		}
		if !unknown(v.answer) {
			answered++
		}
	}
	s.claim(once == len(all), "each order was charged once", "%d of %d", once, len(all))
	s.claim(answered == len(all), "each call was answered", "%d of %d", answered, len(all))
	// The first answer was delivered, so this is a new call that the client intends.
	again := all[0].order
	if _, _, err := st.client.call(ctx, again); err != nil {
		return err
	}
	n, err := st.count("charged", again)
	if err != nil {
		return err
	}
	s.step("client", "charge for %s once more: %s", again, times(n, "charge", "charges"))
	s.claim(n == 2, "a second call that was meant is a second charge", "%d charges", n)
	return nil
}
