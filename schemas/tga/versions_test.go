package tga

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/golden"
)

// members are the members of an object, and the place at which a missing one is reported.
func members[T any](what string, table []field[T]) []byte {
	var b strings.Builder
	b.WriteString(what)
	for _, f := range table {
		fmt.Fprintf(&b, " %s:%s", f.name, f.need)
	}
	return []byte(b.String())
}

func TestFormatsHaveTheirNumbers(t *testing.T) {
	golden.HoldFormat(t, "ContractVersion", ContractVersion,
		members("entry", entryMembers("")), members("state", stateFields), members("checkpoint", checkpointFields),
		members("state of a checkpoint", checkpointStateFields), members("note", noteMembers()))
	var artifacts [][]byte
	for kind, table := range artifactFields {
		artifacts = append(artifacts, members(fmt.Sprint(kind), table))
	}
	golden.HoldFormat(t, "ArtifactVersion", ArtifactVersion, append(artifacts,
		members("resource", resourceFields), members("proposal", proposalFields), members("document hash", documentHashFields),
		members("outcome", outcomeFields), members("external ref", externalRefFields), members("error", outcomeErrorFields))...)
}
