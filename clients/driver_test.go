//go:build unix

package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
)

// drivers are programs that use a client as a script says. They read one operation a line on standard input,
// {"id":…,"op":…,"with":{…}}, and write one answer a line on standard output, {"id":…,"ok":{…}} or
// {"id":…,"error":{…}}. Operations run concurrently.
var drivers = append([]driven{
	{"python", func(t *testing.T) []string { return pythonDriver(t, python(t), "blocks") }},
	{"python-async", func(t *testing.T) []string { return pythonDriver(t, python(t), "async") }},
	{"pypy-3.9", func(t *testing.T) []string { return pythonDriver(t, pypy(t), "blocks") }},
	{"pypy-3.9-async", func(t *testing.T) []string { return pythonDriver(t, pypy(t), "async") }},
}, driversOnEach()...)

type driven struct {
	name    string
	program func(t *testing.T) []string
}

func pythonDriver(t *testing.T, interpreter, way string) []string {
	t.Helper()
	return []string{interpreter, absolute(t, "python/tests/driver.py"), way}
}

func python(t *testing.T) string {
	t.Helper()
	return serial.Program(t, "python3")
}

// pypy is the PyPy of Debian 12, whose language is Python 3.9: the oldest that pyproject.toml allows.
func pypy(t *testing.T) string {
	t.Helper()
	return serial.Program(t, "pypy3")
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var errGone = errors.New("the driver is gone")

// driver is a running program of this kind.
type driver struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	errs bytes.Buffer

	mu      sync.Mutex
	answers map[string]chan map[string]any
	gone    chan struct{}
}

func startDriver(t *testing.T, program []string, socket string) *driver {
	t.Helper()
	d := &driver{t: t, cmd: exec.Command(program[0], program[1:]...), answers: map[string]chan map[string]any{}, gone: make(chan struct{})}
	d.cmd.Env = append(os.Environ(), "TGAD_SOCKET="+socket, "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "PYTHONPATH="+absolute(t, "python/src"))
	d.cmd.Stderr = &d.errs
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go d.read(out)
	return d
}

func (d *driver) read(out io.Reader) {
	defer close(d.gone)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var m map[string]any
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.UseNumber()
		if err := dec.Decode(&m); err != nil {
			d.t.Errorf("the driver says %s: %v", lines.Bytes(), err)
			return
		}
		id, _ := m["id"].(string)
		select {
		case d.of(id) <- m:
		default: // of a cancellation: nobody waits for it
		}
	}
}

func (d *driver) of(id string) chan map[string]any {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answers[id] == nil {
		d.answers[id] = make(chan map[string]any, 1)
	}
	return d.answers[id]
}

func (d *driver) ask(id, op string, with map[string]any) error {
	line, err := json.Marshal(map[string]any{"id": id, "op": op, "with": with})
	if err != nil {
		return err
	}
	_, err = d.in.Write(append(line, '\n'))
	return err
}

func (d *driver) answer(id string) (map[string]any, error) {
	over := time.NewTimer(patience)
	defer over.Stop()
	select {
	case m := <-d.of(id):
		return m, nil
	case <-d.gone:
		select {
		case m := <-d.of(id):
			return m, nil
		default:
			return nil, errGone
		}
	case <-over.C:
		return nil, fmt.Errorf("no answer of %s within %v", id, patience)
	}
}

// end ends the program.
func (d *driver) end() {
	_ = d.cmd.Process.Kill() // it may have ended by itself
	<-d.gone
	_ = d.cmd.Wait()
	if d.t.Failed() && d.errs.Len() > 0 {
		d.t.Logf("the driver's errors:\n%s", d.errs.String())
	}
}
