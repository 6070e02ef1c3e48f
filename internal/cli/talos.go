package cli

import (
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// CheckTalos reports whether the public Talos schemas take every artifact of a trace.
// SCHEMA_VIOLATION names the first member that they refuse.
func CheckTalos(said client.Timeline) error {
	for e, err := range Entries(said, func(string) ([]byte, error) { return nil, nil }) {
		if err != nil {
			return err
		}
		if e.Artifact == nil {
			return tga.Errorf(tga.SchemaViolation, "entry %d of trace %s: its %s is erased, and Talos has no erased artifacts", e.Seq, said.TraceID, e.Type).In(said.TraceID)
		}
		if err := e.Artifact.CheckTalos(); err != nil {
			return err
		}
	}
	return nil
}
