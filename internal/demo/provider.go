//go:build unix

package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// act is a line of the provider's own journal: what reached it and what it did. A line is
// synced before anything is answered.
type act struct {
	What string `json:"what"` // received, acted, refused
	Tool string `json:"tool"`
	Key  string `json:"key"`
}

// provider is a payments and booking provider with an HTTP API. It can lose an answer or
// delay it on request, and it can be asked about a key.
type provider struct {
	mu      sync.Mutex
	journal *os.File
	files   string
	acted   map[string]json.RawMessage // by tool and key: the answer
	claimed map[string]int             // by key: how often it answered that the key did not run
}

// Provider is the verb that runs it: --listen PATH (where it writes its address),
// --journal FILE, --files DIR.
func Provider(args []string, _ io.Reader, _, stderr io.Writer) int {
	flags := flag.NewFlagSet("provider", flag.ContinueOnError)
	flags.SetOutput(stderr)
	address, journal := flags.String("listen", "", "file for the address"), flags.String("journal", "", "journal")
	files := flags.String("files", "", "directory that the tool write writes in")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := serveProvider(*address, *journal, *files); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func serveProvider(address, journal, files string) error {
	f, err := os.OpenFile(journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	defer f.Close()
	p := &provider{journal: f, files: files, acted: map[string]json.RawMessage{}, claimed: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /claims", p.claim)
	mux.HandleFunc("POST /{tool}", p.call)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.WriteFile(address+".new", []byte(l.Addr().String()), 0o640); err != nil {
		return err
	}
	if err := os.Rename(address+".new", address); err != nil {
		return err
	}
	return http.Serve(l, mux)
}

func (p *provider) note(what, tool, key string) error {
	b, err := json.Marshal(act{what, tool, key})
	if err != nil {
		return err
	}
	if _, err := p.journal.Write(append(b, '\n')); err != nil {
		return err
	}
	return p.journal.Sync()
}

// order is what the arguments of a call may say.
type orderArguments struct {
	LoseAnswer bool   `json:"lose_answer"`
	LoseCall   bool   `json:"lose_call"`
	Think      int    `json:"think_ms"`
	Path       string `json:"path"`
	Text       string `json:"text"`
}

// call is POST /TOOL with the arguments as body.
func (p *provider) call(w http.ResponseWriter, r *http.Request) {
	tool, key := r.PathValue("tool"), r.Header.Get("Idempotency-Key")
	var args orderArguments
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	attempt, err := strconv.Atoi(r.Header.Get("Tgad-Attempt"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if args.LoseCall && attempt == 1 {
		drop(w) // it never got here
		return
	}
	p.mu.Lock()
	err = p.note("received", tool, key)
	p.mu.Unlock()
	time.Sleep(time.Duration(args.Think) * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && attempt <= p.claimed[key] {
		err = errors.Join(p.note("refused", tool, key), errors.New("this attempt was given up"))
	}
	if err == nil {
		err = p.act(tool, key, args)
	}
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusConflict)
	case args.LoseAnswer:
		drop(w)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(p.acted[tool+" "+key]) // the caller may be gone; the journal knows
	}
}

// act executes a tool and notes it. It does so each time it is asked: a second send would be
// a second charge.
func (p *provider) act(tool, key string, args orderArguments) error {
	answer := map[string]any{"id": tool + "-" + key}
	if tool == "write" {
		if err := os.WriteFile(filepath.Join(p.files, filepath.Base(args.Path)), []byte(args.Text), 0o640); err != nil {
			return err
		}
		answer["path"], answer["sha256"] = filepath.Base(args.Path), tga.Sum([]byte(args.Text)).String()
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	p.acted[tool+" "+key] = b
	return p.note("acted", tool, key)
}

// claim is POST /claims {tool, key}: did it run? If it did not, the attempts made so far
// are refused from now on.
func (p *provider) claim(w http.ResponseWriter, r *http.Request) {
	var q struct{ Tool, Key string }
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, ran := p.acted[q.Tool+" "+q.Key]
	if !ran {
		p.claimed[q.Key]++
	}
	b, err := json.Marshal(map[string]any{"ran": ran, "answer": answer})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // as above
}

// drop ends the connection without an answer.
func drop(w http.ResponseWriter) {
	if h, ok := w.(http.Hijacker); ok {
		if conn, _, err := h.Hijack(); err == nil {
			_ = conn.Close() // that is the point
		}
	}
}

// acts counts the lines of the provider's journal about a tool and key; "" stands for every key.
func acts(journal, what, tool, key string) (n int, err error) {
	f, err := os.Open(journal)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var a act
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return n, err
		}
		if a.What == what && a.Tool == tool && (key == "" || a.Key == key) {
			n++
		}
	}
	return n, lines.Err()
}
