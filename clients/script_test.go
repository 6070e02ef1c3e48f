//go:build unix

package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// script is a file of test_vectors/client: what a client is asked, and the expected result.
type script struct {
	About string `json:"about"`
	// Lossy connects the client through a socket that loses answers.
	Lossy bool   `json:"lossy"`
	Steps []step `json:"steps"`
}

// step is one of: an action of the world, an operation of the client, the end of an operation.
type step struct {
	// Daemon is kill, start or restart. Tool is hold or release.
	Daemon string `json:"daemon"`
	Tool   string `json:"tool"`
	// Received is how often the tool server must have received a key; the step waits for it.
	Received map[string]int `json:"received"`
	// Keys is the number of keys that the tool server has acted on since the script began.
	Keys *int `json:"keys"`
	// Ran is how often the function of the operation tool ran since the script began.
	Ran *int `json:"ran"`

	// Lose is the number of the daemon's next answers that are lost.
	Lose int32 `json:"lose"`
	// Cursor saves the end of the store's log.
	Cursor string `json:"cursor"`

	// Do is an operation with its parameters. ID names an operation that goes on in the background; Await
	// waits for its end, Cancel cancels it.
	Do     string         `json:"do"`
	With   map[string]any `json:"with"`
	ID     string         `json:"id"`
	Await  string         `json:"await"`
	Cancel string         `json:"cancel"`
	// OK has members of the expected answer, Error those of a refusal. Save names members that later steps
	// use as "$name".
	OK    map[string]any    `json:"ok"`
	Error map[string]any    `json:"error"`
	Save  map[string]string `json:"save"`
}

func readScript(t *testing.T, path string) script {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s script
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // numbers keep their digits
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return s
}

// TestClientsConform runs every script of test_vectors/client with every client, against a real daemon.
func TestClientsConform(t *testing.T) {
	paths, err := filepath.Glob("../test_vectors/client/*.json")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d scripts, %v", len(paths), err)
	}
	for _, of := range drivers {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			program := of.program(t)
			w := newWorld(t)
			d := startDriver(t, program, w.socket)
			defer func() { d.end() }()
			for _, path := range paths {
				name := strings.TrimSuffix(filepath.Base(path), ".json")
				t.Run(name, func(t *testing.T) {
					w.t = t
					r := &run{t: t, w: w, name: name, driver: d, program: program, saved: map[string]any{"mark": filepath.Join(w.dir, name+".mark")}}
					r.play(readScript(t, path))
					d = r.driver
				})
			}
			w.t = t
		})
	}
}

// run is one run of a script.
type run struct {
	t       *testing.T
	w       *world
	name    string
	program []string
	driver  *driver
	saved   map[string]any
	lossy   *lossy
}

func (r *run) play(s script) {
	if s.Lossy {
		r.lossy = newLossy(r.t, r.w)
		own := r.driver
		r.driver = startDriver(r.t, r.program, r.lossy.socket)
		defer func() {
			r.driver.end()
			r.driver = own
		}()
	}
	_, before := r.w.tools.counts("")
	for i, step := range s.Steps {
		err := r.world(&step, before)
		if err == nil {
			err = r.operate(&step)
		}
		if err != nil {
			r.t.Errorf("step %d: %v", i+1, err)
			break
		}
	}
	r.w.tools.release()
	if r.w.cmd == nil {
		r.w.start()
	}
}

// world does what a step says about the daemon and the tool server.
func (r *run) world(s *step, before int) error {
	switch s.Daemon {
	case "kill":
		r.w.kill()
	case "start":
		r.w.start()
	case "restart":
		r.w.kill()
		r.w.start()
	}
	switch s.Tool {
	case "hold":
		r.w.tools.hold()
	case "release":
		r.w.tools.release()
	}
	for key, want := range s.Received {
		err := until(func() error {
			if got, _ := r.w.tools.counts(key); got != want {
				return fmt.Errorf("the tool server received %q %d times, want %d", key, got, want)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if s.Keys != nil {
		if _, now := r.w.tools.counts(""); now-before != *s.Keys {
			return fmt.Errorf("the tool server acted on %d keys, want %d", now-before, *s.Keys)
		}
	}
	if s.Lose > 0 {
		r.lossy.lose.Store(s.Lose)
	}
	if s.Cursor != "" {
		for line, err := range r.w.client.Log(r.t.Context(), "", false) {
			if err != nil {
				return err
			}
			r.saved[s.Cursor] = line.Cursor
		}
	}
	if s.Ran != nil {
		marks, err := os.ReadFile(r.saved["mark"].(string))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if n := bytes.Count(marks, []byte("\n")); n != *s.Ran {
			return fmt.Errorf("the function ran %d times, want %d", n, *s.Ran)
		}
	}
	return nil
}

// operate lets the client do what a step says, and checks the result.
func (r *run) operate(s *step) error {
	var answer map[string]any
	var err error
	switch {
	case s.Cancel != "":
		return r.driver.ask(r.name+" cancel", "cancel", map[string]any{"id": r.name + s.Cancel})
	case s.Await != "":
		answer, err = r.driver.answer(r.name + s.Await)
	case s.Do == "quit":
		r.driver.end()
		r.driver = startDriver(r.t, r.program, r.w.socket)
		return nil
	case s.Do == "":
		return nil
	default:
		id := r.name + s.ID
		if err := r.driver.ask(id, s.Do, r.filled(s.With).(map[string]any)); err != nil || s.ID != "" {
			return err
		}
		answer, err = r.driver.answer(id)
	}
	if errors.Is(err, errGone) {
		answer, err = map[string]any{"error": map[string]any{"class": "gone"}}, nil
	}
	if err != nil {
		return err
	}
	return r.judge(s, answer)
}

func (r *run) judge(s *step, answer map[string]any) error {
	want, kind := s.OK, "ok"
	if s.Error != nil {
		want, kind = s.Error, "error"
	}
	got, ok := answer[kind].(map[string]any)
	if !ok {
		return fmt.Errorf("%s%s: %s, want %s", s.Do, s.Await, text(answer), kind)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if w := r.filled(want[name]); !reflect.DeepEqual(got[name], w) {
			return fmt.Errorf("%s%s: %s is %s, want %s; all of it: %s", s.Do, s.Await, name, text(got[name]), text(w), text(got))
		}
	}
	for as, name := range s.Save {
		if got[name] == nil {
			return fmt.Errorf("%s%s: no %s in %s", s.Do, s.Await, name, text(got))
		}
		r.saved[as] = got[name]
	}
	return nil
}

// filled replaces "$name" by the saved value.
func (r *run) filled(v any) any {
	switch v := v.(type) {
	case map[string]any:
		filled := map[string]any{}
		for name, x := range v {
			filled[name] = r.filled(x)
		}
		return filled
	case []any:
		filled := []any{}
		for _, x := range v {
			filled = append(filled, r.filled(x))
		}
		return filled
	case string:
		if name, ok := strings.CutPrefix(v, "$"); ok {
			if x, ok := r.saved[name]; ok {
				return x
			}
			r.t.Errorf("nothing was saved as %s", name)
		}
	}
	return v
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
