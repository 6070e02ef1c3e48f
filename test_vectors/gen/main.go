// Command gen writes the golden vectors of test_vectors/tga that are made with package
// schemas/tga. Run it from the module's root:
//
//	go run ./test_vectors/gen
//
// Its output is committed, and a test fails when the two differ: a change of format
// shows as a change of a vector.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/internal/vector"
)

// file is one vector file.
type file struct {
	name    string
	content any
}

func files() []file {
	return []file{
		{"golden_chain.json", goldenChain()},
		{"state_transition_vectors.json", stateTransitions()},
		{"canonical_json.json", canonicalJSON()},
		{"log_bytes.json", vector.Log()},
	}
}

// render writes v as indented JSON. Raw messages keep their numbers and escapes.
func render(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

func main() {
	dir := flag.String("dir", filepath.Join("test_vectors", "tga"), "where the vectors are")
	flag.Parse()
	for _, f := range files() {
		b, err := render(f.content)
		if err == nil {
			err = os.WriteFile(filepath.Join(*dir, f.name), b, 0o644)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "gen: %s: %v\n", f.name, err)
			os.Exit(1)
		}
	}
}

// must panics on an error. It is for values that the generator makes itself, so an error is a bug
// of the generator.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
