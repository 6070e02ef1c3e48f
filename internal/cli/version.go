package cli

import (
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Version says which program this is, and which formats it writes.
type Version struct {
	Version  string   `json:"version"`
	Revision string   `json:"revision"` // of the source, "+" when it was changed; "unknown" outside a repository
	Go       string   `json:"go"`
	Pebble   string   `json:"pebble"` // "unknown" where the program links none
	Formats  []Format `json:"formats"`
}

// Format is one format on disk or on the wire, and the version of it that this program writes.
type Format struct {
	Name    string `json:"name"` // of its constant in package tga, without the word Version
	Version string `json:"version"`
}

// formats are those of schemas/tga/versions.go, in its order.
func formats() []Format {
	number := func(n int) string { return fmt.Sprint(n) }
	return []Format{
		{"LogSegment", number(tga.LogSegmentVersion)},
		{"LogRecord", number(tga.LogRecordVersion)},
		{"LogPacked", number(tga.LogPackedVersion)},
		{"LogBody", number(tga.LogBodyVersion)},
		{"EntryFrame", number(tga.EntryFrameVersion)},
		{"SealedFrame", number(tga.SealedFrameVersion)},
		{"SealedValue", number(tga.SealedValueVersion)},
		{"NoteFrame", number(tga.NoteFrameVersion)},
		{"StoreValue", number(tga.StoreValueVersion)},
		{"LedgerRecord", number(tga.LedgerRecordVersion)},
		{"Store", number(tga.StoreVersion)},
		{"Watermark", number(tga.WatermarkVersion)},
		{"SealedSegment", number(tga.SealedSegmentVersion)},
		{"Backup", tga.BackupVersion},
		{"Witness", tga.WitnessVersion},
		{"Bucket", tga.BucketVersion},
		{"Keyring", number(tga.KeyringVersion)},
		{"WorkingState", number(tga.WorkingStateVersion)},
		{"StateNode", number(tga.StateNodeVersion)},
		{"StateRoot", number(tga.StateRootVersion)},
		{"Snapshot", tga.SnapshotVersion},
		{"TurnRecord", tga.TurnRecordVersion},
		{"Session", number(tga.SessionVersion)},
		{"TurnOps", number(tga.TurnOpsVersion)},
		{"AgentState", number(tga.AgentStateVersion)},
		{"EvidenceLeaf", number(tga.EvidenceLeafVersion)},
		{"EvidenceTree", number(tga.EvidenceTreeVersion)},
		{"EvidenceNotes", number(tga.EvidenceNotesVersion)},
		{"EvidenceBundle", tga.EvidenceBundleVersion},
		{"MonitorState", tga.MonitorStateVersion},
		{"MonitorKeys", number(tga.MonitorKeysVersion)},
		{"WitnessState", number(tga.WitnessStateVersion)},
		{"Workspace", number(tga.WorkspaceVersion)},
		{"Wire", tga.WireVersion},
		{"Artifact", tga.ArtifactVersion},
		{"Contract", tga.ContractVersion},
	}
}

// String returns the first line of Text, for issue reports and logs.
func (v Version) String() string { return "tgad " + v.Version + " " + v.Revision + " " + v.Go }

// Text is everything, for people.
func (v Version) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\npebble %s\nformats:", v, v.Pebble)
	width := 80
	for _, f := range v.Formats {
		word := f.Name + " " + f.Version + ","
		if width += 1 + len(word); width > 80 {
			b.WriteString("\n ")
			width = 2 + len(word)
		}
		b.WriteString(" " + word)
	}
	return strings.TrimSuffix(b.String(), ",") + "\n"
}

// BuildVersion returns the version that is recorded in the binary.
func BuildVersion() Version {
	v := Version{Version: "devel", Revision: "unknown", Go: goruntime.Version(), Pebble: "unknown", Formats: formats()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/cockroachdb/pebble/v2" {
			v.Pebble = m.Version
		}
	}
	modified := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+"
		}
	}
	v.Revision += modified
	return v
}
