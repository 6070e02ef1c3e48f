// Command gen writes the generated files of the clients in clients/python and clients/typescript:
// the types of the messages, from schemas/wire/openapi.yaml, and a class for each error code, from
// the table of schemas/tga. Run it from the module's root: go run ./clients/gen
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// roots are the messages that a client sends or reads. The types that they refer to are written too.
var roots = []string{
	"CallRequest", "BeginRequest", "Call", "Begun", "FinishRequest", "NotSentRequest", "GiveUpRequest",
	"ResolveRequest", "AbandonRequest", "DecideRequest", "Timeline", "Entry", "LogLine", "ExecutionState",
	"Receipt", "Traces", "Approvals", "Problem",
}

func main() {
	if err := write("clients"); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// write writes the files below dir.
func write(dir string) error {
	files, err := generate()
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), text, 0o644)
		}
	}
	return err
}

// generate returns the files by their names below the folder of the clients.
func generate() (map[string][]byte, error) {
	messages, err := reached(wire.OpenAPI, roots)
	if err != nil {
		return nil, err
	}
	codes := tga.Codes()
	return map[string][]byte{
		"python/src/tgad/_requests.py": pythonRequests(messages),
		"python/src/tgad/_wire.py":     pythonAnswers(messages),
		"python/src/tgad/_codes.py":    pythonCodes(codes),
		"typescript/src/wire.ts":       typescriptMessages(messages),
		"typescript/src/codes.ts":      typescriptCodes(codes),
	}, nil
}
