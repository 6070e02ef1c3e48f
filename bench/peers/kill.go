package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// The kill test finds out what becomes of a call whose process is killed (SIGKILL) after the
// tool has executed it and before its record is durable. The tool is outside the process and
// counts.

// steps are the peers that make a call and record its outcome.
var steps = []struct {
	name string
	// start starts what outlives the process that is killed.
	start func(dir string) (at string, stop func() error, err error)
	// step makes the call key unless its outcome is recorded, and returns the answer to
	// the caller.
	step func(at, tool, key string) (answer string, err error)
}{
	{"tgad", func(dir string) (string, func() error, error) { return dir, func() error { return nil }, nil }, tgadStep},
	{"postgresql step", startStepTable, postgresStep},
}

// tgadStep is a governed call of a tool that has no licence to be sent again.
func tgadStep(at, tool, key string) (answer string, err error) {
	db, err := engine.Open(filepath.Join(at, "store"), engine.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tools := runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
		reply, err := charge(tool, key)
		return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(reply)}, err
	})
	rt, err := runtime.New(db, tools, runtime.AllowAll, runtime.Options{})
	if err != nil {
		return "", err
	}
	req := load.CallRequest(load.New(1<<10), 1<<10)
	req.Args, req.Key = []byte(`{"amount":12}`), key
	res, err := rt.Call(context.Background(), req)
	if err == nil {
		err = res.Err()
	}
	switch code := tga.CodeOf(err); {
	case err == nil:
		return "done", nil
	case code == tga.EffectInDoubt:
		return string(code), nil
	}
	return "", err
}

func startStepTable(dir string) (string, func() error, error) {
	server, err := startPostgres(dir, 1)
	if err != nil {
		return "", nil, err
	}
	at := fmt.Sprintf("host=%s user=bench dbname=postgres", server.dir)
	conn, err := pgx.Connect(context.Background(), at)
	if err == nil {
		_, err = conn.Exec(context.Background(), "CREATE TABLE step (key TEXT PRIMARY KEY, outcome TEXT NOT NULL)")
		err = errors.Join(err, conn.Close(context.Background()))
	}
	if err != nil {
		return "", nil, errors.Join(err, server.stop())
	}
	return at, server.stop, nil
}

// postgresStep is the durable step of workflow engines on a database: it returns a recorded
// outcome; if there is none, it makes the call and then records the outcome.
func postgresStep(at, tool, key string) (answer string, err error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	err = conn.QueryRow(ctx, "SELECT outcome FROM step WHERE key = $1", key).Scan(&answer)
	if !errors.Is(err, pgx.ErrNoRows) {
		return "done", err
	}
	if answer, err = charge(tool, key); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, "INSERT INTO step VALUES ($1, $2)", key, answer)
	return "done", err
}

// charge calls the tool.
func charge(tool, key string) (string, error) {
	reply, err := http.Post(tool, "text/plain", strings.NewReader(key))
	if err != nil {
		return "", err
	}
	defer func() { _ = reply.Body.Close() }() // read to its end
	b, err := io.ReadAll(reply.Body)
	return string(b), err
}

// counter is the tool: each request is an effect of its key. The first of every key kills
// the process that sent it instead of answering.
type counter struct {
	mu      sync.Mutex
	effects map[string]int
	victim  *os.Process
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := io.ReadAll(r.Body)
	if err != nil {
		return // it did not ask for anything
	}
	c.mu.Lock()
	c.effects[string(key)]++
	first, victim := c.effects[string(key)] == 1, c.victim
	c.mu.Unlock()
	if first {
		_ = victim.Signal(syscall.SIGKILL) // it is this process's child and not yet waited for
		<-r.Context().Done()
		return
	}
	_, _ = io.WriteString(w, `{"paid":true}`) // its loss would be one more lost answer
}

// killed is one row of the result.
type killed struct {
	name                  string
	calls, kills, effects int
	twice                 int // calls with more than one effect
	answers               map[string]int
}

// killTest makes n calls with each of the steps, each killed once after its effect and
// then made again by a new process.
func killTest(dir string, n int, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "store\tcalls\tkilled\teffects\tmade twice\tthe caller is told\t")
	for i := range steps {
		k, err := killOne(dir, i, n)
		if err != nil {
			return fmt.Errorf("%s: %w", steps[i].name, err)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%v\t\n", k.name, k.calls, k.kills, k.effects, k.twice, k.answers)
	}
	return w.Flush()
}

func killOne(parent string, kind, n int) (k killed, err error) {
	dir, err := os.MkdirTemp(parent, "kill-")
	if err != nil {
		return k, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return k, err
	}
	at, stop, err := steps[kind].start(dir)
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return k, err
	}
	tool := &counter{effects: map[string]int{}}
	srv := &http.Server{Handler: tool}
	go func() { _ = srv.Serve(l) }() // ends with Close
	defer func() { err = errors.Join(err, srv.Close()) }()
	k = killed{name: steps[kind].name, calls: n, answers: map[string]int{}}
	for i := range n {
		key := fmt.Sprintf("order-%d", i)
		for again := true; again; {
			var answer string
			if answer, again, err = tool.run(kind, at, "http://"+l.Addr().String(), key); err != nil {
				return k, err
			}
			if again {
				k.kills++
			} else {
				k.answers[answer]++
			}
		}
	}
	tool.mu.Lock()
	defer tool.mu.Unlock()
	for _, effects := range tool.effects {
		k.effects += effects
		if effects > 1 {
			k.twice++
		}
	}
	return k, nil
}

// run makes a call in a process of its own; died is whether it was killed.
func (c *counter) run(kind int, at, tool, key string) (answer string, died bool, err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d\n%s\n%s\n%s", victimEnv, kind, at, tool, key))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", false, err
	}
	c.mu.Lock()
	err = cmd.Start()
	c.victim = cmd.Process
	c.mu.Unlock()
	if err != nil {
		return "", false, err
	}
	answer, _ = bufio.NewReader(stdout).ReadString('\n') // what it said before it died is nothing
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() && s.Signal() == syscall.SIGKILL {
			return "", true, nil
		}
	}
	return strings.TrimSpace(answer), false, err
}

// victimEnv holds the call that a process started by [counter.run] makes.
const victimEnv = "PEERS_VICTIM"

// victim makes the call that the environment asks for; false where it asks for none.
func victim() (bool, error) {
	job, is := os.LookupEnv(victimEnv)
	if !is {
		return false, nil
	}
	parts := strings.Split(job, "\n")
	var kind int
	if _, err := fmt.Sscan(parts[0], &kind); err != nil || len(parts) != 4 {
		return true, fmt.Errorf("%s=%q", victimEnv, job)
	}
	answer, err := steps[kind].step(parts[1], parts[2], parts[3])
	if err == nil {
		_, err = fmt.Println(answer)
	}
	return true, err
}
