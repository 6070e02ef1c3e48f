package turn

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Record is one link of a turn's journal. The store has the digest of its canonical JSON (32
// bytes), followed by that JSON.
type Record struct {
	SchemaID      string          `json:"schema_id"`      // RecordSchema
	SchemaVersion string          `json:"schema_version"` // tga.TurnRecordVersion
	InteractionID tga.ID          `json:"interaction_id"`
	Number        uint64          `json:"record_number"` // from 1, no gap
	Prev          tga.Digest      `json:"prev_record_digest"`
	TS            tga.Millis      `json:"ts"`
	Phase         Phase           `json:"phase"`
	Kind          Kind            `json:"kind"`
	Body          json.RawMessage `json:"body"`

	Digest tga.Digest `json:"-"`
}

// RecordSchema is the schema id of a record.
const RecordSchema = "tgad.turn_record"

// Kind says what a record is about.
type Kind string

// The kinds. Done ends a phase. Asked is a question to a model, before it is sent. Failed ends
// the turn except for its EMIT phase. Parked says that the turn waits for a person: until a
// Decided record follows, or until what it waits for is settled elsewhere. Resumed ends the wait
// of a turn whose time is limited.
const (
	Done    Kind = "done"
	Asked   Kind = "asked"
	Failed  Kind = "failed"
	Parked  Kind = "parked"
	Decided Kind = "decided"
	Resumed Kind = "resumed"
)

// maxRecord is the most bytes of a record. Questions with images are the largest. It is a
// variable so that tests can lower it.
var maxRecord = 64 << 20

// around is more than the levels of nesting that a record puts around the values in it. A value of
// the state, or a tool's schema, may have all of [tga.DefaultMaxDepth] itself.
const around = 8

// journal is a turn's stream, under the turn's lease.
type journal struct {
	store  runtime.Store
	lease  chain.Lease
	id     tga.ID
	number uint64     // of the newest record
	head   tga.Digest // of the newest record
	staged []chain.Attachment
}

// stage adds a record to the chain. The record is durable once [journal.commit] has returned.
func (j *journal) stage(at tga.Millis, phase Phase, kind Kind, body any) (Record, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return Record{}, tga.Errorf(tga.GenericStateError, "record of phase %s: %w", phase, err)
	}
	r := Record{
		SchemaID: RecordSchema, SchemaVersion: tga.TurnRecordVersion, InteractionID: j.id, Number: j.number + 1,
		Prev: j.head, TS: at, Phase: phase, Kind: kind, Body: raw,
	}
	if raw, err = json.Marshal(r); err != nil {
		return Record{}, tga.Errorf(tga.GenericStateError, "record of phase %s: %w", phase, err)
	}
	text, err := tga.Canonicalize(raw, tga.Limits{MaxBytes: maxRecord, MaxDepth: tga.DefaultMaxDepth + around})
	if err != nil {
		return Record{}, tga.Errorf(codeOr(err, tga.ValidationError), "record of phase %s: %w", phase, err)
	}
	r.Digest = tga.Sum(text)
	j.staged = append(j.staged, chain.Attachment{
		Kind: chain.AttachStream, Key: keyspace.StreamKey(j.id, r.Number), Value: append(slices.Clone(r.Digest[:]), text...),
	})
	j.number, j.head = r.Number, r.Digest
	return r, nil
}

// commit makes the staged records and the attachments in more durable, all or none. It ignores
// the end of ctx: a phase that has run is recorded even if nobody waits any more.
func (j *journal) commit(ctx context.Context, more ...chain.Attachment) error {
	all := append(slices.Clone(j.staged), more...)
	if len(all) == 0 {
		return nil
	}
	if _, err := j.store.Append(context.WithoutCancel(ctx), j.lease, chain.Batch{Attachments: all}); err != nil {
		return err
	}
	j.staged = nil
	return nil
}

// mark is a position among the staged records.
type mark struct {
	number uint64
	head   tga.Digest
	staged int
}

func (j *journal) mark() mark { return mark{j.number, j.head, len(j.staged)} }

// backTo removes the records that were staged after m. They must not be durable.
func (j *journal) backTo(m mark) {
	j.number, j.head, j.staged = m.number, m.head, j.staged[:m.staged]
}

// readRecord checks one stored record against the one before it.
func readRecord(id tga.ID, number uint64, prev tga.Digest, value []byte) (Record, error) {
	var r Record
	bad := func(format string, args ...any) (Record, error) {
		e := tga.Errorf(tga.StateChecksumMismatch, "record %d of turn %s: "+format, append([]any{number, id}, args...)...)
		e.Where = "stored"
		return r, e
	}
	if len(value) < len(r.Digest) {
		return bad("%d bytes", len(value))
	}
	text := value[len(r.Digest):]
	copy(r.Digest[:], value)
	if got := tga.Sum(text); got != r.Digest {
		return bad("its text has digest %s, not %s", got, r.Digest)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return bad("%v", err)
	}
	switch {
	case r.SchemaID != RecordSchema || r.SchemaVersion != tga.TurnRecordVersion:
		return r, tga.Errorf(tga.FormatTooNew, "record %d of turn %s has schema %s %s", number, id, r.SchemaID, r.SchemaVersion)
	case r.InteractionID != id || r.Number != number:
		return bad("it is record %d of turn %s", r.Number, r.InteractionID)
	case r.Prev != prev:
		return bad("it follows %s, not %s", r.Prev, prev)
	}
	return r, nil
}

// readStream reads a turn's journal and the stored state changes of its tools. It returns no
// error if nothing is stored. IDEMPOTENCY_KEY_EXPIRED says that the turn was erased.
func readStream(ctx context.Context, store runtime.AttachmentReader, id tga.ID) (records []Record, ops []storedOps, err error) {
	var prev tga.Digest
	for a, err := range store.Attachments(ctx, chain.AttachStream, keyspace.StreamPrefix(id)) {
		if err != nil {
			return nil, nil, err
		}
		_, item, err := keyspace.ParseStream(a.Key)
		if err != nil {
			return nil, nil, err
		}
		if len(a.Value) == 0 {
			return nil, nil, erasedTurn(id)
		}
		if item >= keyspace.OpsItem {
			o, err := readOps(id, a.Value)
			if err != nil {
				return nil, nil, err
			}
			ops = append(ops, o)
			continue
		}
		if want := uint64(len(records)) + 1; item != want {
			return nil, nil, tga.Errorf(tga.StateSequenceGap, "turn %s: record %d where %d follows", id, item, want)
		}
		r, err := readRecord(id, item, prev, a.Value)
		if err != nil {
			return nil, nil, err
		}
		records, prev = append(records, r), r.Digest
	}
	return records, ops, nil
}

func codeOr(err error, code tga.Code) tga.Code {
	if c := tga.CodeOf(err); c != "" {
		return c
	}
	return code
}
