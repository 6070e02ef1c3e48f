package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestCommittedFilesAreWhatItWrites: the generated messages and codes of the clients are those of the
// protocol.
func TestCommittedFilesAreWhatItWrites(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("clients/%s is not what the protocol says: go run ./clients/gen", name)
		}
	}
}
