package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestCommittedVectorsAreCurrent(t *testing.T) {
	for _, f := range files() {
		want, err := render(f.content)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		got, err := os.ReadFile(filepath.Join("..", "tga", f.name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what go run ./test_vectors/gen writes", f.name)
		}
	}
}
