package tga

// The version of every format on disk and on the wire. A format that changes gets the next
// number here. Its readers refuse every other number with FORMAT_TOO_NEW, or read that version
// too. docs/FORMAT.md has the formats. test_vectors/tga/formats.json has a digest of each: if a
// format changes and its number does not, the test of its package fails.
const (
	// The log: segments as they are written, records in them, segments that were rewritten,
	// and bodies that have files of their own (package wal).
	LogSegmentVersion = 2
	LogRecordVersion  = 1
	LogPackedVersion  = 2
	LogBodyVersion    = 1

	// The content of the log: entries and notes (wal/chain), the values of the store
	// (engine), ledger records.
	EntryFrameVersion   = 1
	SealedFrameVersion  = 2 // of an entry whose parts are sealed
	SealedValueVersion  = 1 // of a value beside the entries that is sealed
	NoteFrameVersion    = 1
	StoreValueVersion   = 1
	LedgerRecordVersion = 1

	// StoreVersion is that of the store as a whole: its keys and what they mean.
	StoreVersion = 3
	// WatermarkVersion ends the magic number of WATERMARK.
	WatermarkVersion = 2
	// SealedSegmentVersion is that of the files of archived traces.
	SealedSegmentVersion = 2
	// BackupVersion and WitnessVersion end the format's name in BACKUP and in a witness file.
	BackupVersion  = "1"
	WitnessVersion = "1"
	// BucketVersion ends that of the object BACKUP of a bucket.
	BucketVersion = "1"
	// KeyringVersion is that of the file with the data keys, beside the store.
	KeyringVersion = 1

	// Working state: heads and boundaries, nodes, and its JSON snapshots.
	WorkingStateVersion = 1
	StateNodeVersion    = 1
	StateRootVersion    = 1
	SnapshotVersion     = "1"

	// Agents: records of turns, turns of a session, what a call did to the state, the state.
	TurnRecordVersion = "v1"
	SessionVersion    = 1
	TurnOpsVersion    = 1
	AgentStateVersion = 1

	// The Merkle tree of a store: what is hashed of an append, and the files that keep it.
	EvidenceLeafVersion   = 1
	EvidenceTreeVersion   = 1
	EvidenceNotesVersion  = 1
	EvidenceBundleVersion = "1"
	MonitorStateVersion   = "1" // what tgad monitor remembers
	MonitorKeysVersion    = 1   // what tgad monitor remembers of each idempotency key
	WitnessStateVersion   = 1   // what tgad witness remembers

	// WorkspaceVersion is that of the records of `tgad workspace`.
	WorkspaceVersion = 1

	// WireVersion begins the path of each route of the daemon's API. schemas/wire/testdata has
	// what the version promises. Removing a route or a member needs the next version.
	WireVersion = "v1"

	// The schema_version of artifacts, and that of all other documents of Talos's contracts.
	ArtifactVersion = "tga.v1"
	ContractVersion = "v1"
)
