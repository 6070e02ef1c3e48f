package engine_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var _ runtime.Store = (*engine.DB)(nil)

// start is the time the test clocks stand at.
const start tga.Millis = 1768503600000

// id returns a UUIDv7 that depends on n alone; ids sort as their n.
func id(n uint64) tga.ID {
	var out tga.ID
	binary.BigEndian.PutUint64(out[8:], n)
	binary.BigEndian.PutUint32(out[0:], uint32(n>>16))
	sum := tga.Sum(out[:])
	copy(out[10:], sum[:6])
	binary.BigEndian.PutUint32(out[2:], uint32(n))
	out[6], out[8] = 0x70, 0x80
	return out
}

// spec describes a governed call. The zero value of a field is the ordinary case.
type spec struct {
	trace     tga.ID
	key       string // "" = key-<trace>
	args      string // "" = {"amount":12}
	namespace string
	subject   string
	attempt   string // meta.attempt of the call
	permit    string
	retryOf   tga.ID
	verdict   string // "" = APPROVE
	status    string // "" = SUCCESS
	code      string // error code of the effect
	class     string // meta.outcome_class of the effect
	replayed  tga.ID // meta.replayed_from of the effect
	documents []chain.Document
}

// made is a call's artifacts.
type made struct {
	request, decision, call, effect *tga.Artifact
	documents                       []chain.Document
}

func (m made) batch(parts ...*tga.Artifact) chain.Batch {
	var b chain.Batch
	for _, a := range parts {
		n := chain.NewArtifact{Artifact: a}
		if a == m.effect {
			n.Documents = m.documents
		}
		b.Artifacts = append(b.Artifacts, n)
	}
	return b
}

// begin is everything up to the call, end the effect.
func (m made) begin() chain.Batch { return m.batch(m.request, m.decision, m.call) }
func (m made) end() chain.Batch   { return m.batch(m.effect) }

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// ids gives artifact ids: distinct within a trace, a function of it.
func artifactID(trace tga.ID, n byte) tga.ID {
	sum := tga.Sum(append(trace[:], n))
	out := tga.ID(sum[:16])
	out[6], out[8] = out[6]&0xf|0x70, out[8]&0x3f|0x80
	return out
}

func (s spec) make(t testing.TB) made {
	t.Helper()
	seal := func(kind tga.ArtifactType, n byte, meta tga.Meta, fill func(*tga.Artifact)) *tga.Artifact {
		a := &tga.Artifact{Type: kind, ID: artifactID(s.trace, n), TraceID: s.trace, PlanID: artifactID(s.trace, 100), TS: start, Meta: meta}
		fill(a)
		if err := a.Seal(); err != nil {
			t.Fatal(err)
		}
		return a
	}
	meta := func(pairs ...string) tga.Meta {
		m := tga.Meta{tga.MetaNonce: fmt.Sprintf("%x", s.trace[:])}
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] != "" {
				m[pairs[i]] = pairs[i+1]
			}
		}
		return m
	}
	text := func(id tga.ID) string {
		if id.IsZero() {
			return ""
		}
		return id.String()
	}
	proposal := tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(or(s.args, `{"amount":12}`))}
	key := or(s.key, "key-"+s.trace.String())
	m := made{documents: s.documents}
	m.request = seal(tga.RequestType, 1, meta(tga.MetaNamespace, s.namespace, tga.MetaSubject, s.subject, tga.MetaRetryOf, text(s.retryOf)), func(a *tga.Artifact) {
		a.Request = &tga.ActionRequest{
			AgentID: artifactID(s.trace, 101), RiskLevel: tga.RiskWrite, Intent: "charge the customer once",
			Resources: []tga.Resource{{Kind: "service", ID: "payments"}}, Proposal: proposal, IdempotencyKey: key,
		}
	})
	m.decision = seal(tga.DecisionType, 2, meta(), func(a *tga.Artifact) {
		a.Decision = &tga.SupervisorDecision{
			RequestID: m.request.ID, RequestDigest: m.request.Digest,
			Decision: or(s.verdict, tga.Approve), Rationale: "allowed by rule 1",
		}
	})
	m.call = seal(tga.CallType, 3, meta(tga.MetaAttempt, s.attempt, tga.MetaPermitDigest, s.permit), func(a *tga.Artifact) {
		a.Call = &tga.ToolCall{
			DecisionID: m.decision.ID, DecisionDigest: m.decision.Digest, Call: proposal,
			IdempotencyKey: key, ToolClass: tga.ClassWrite, BatchTotalBytes: -1,
		}
	})
	m.effect = seal(tga.EffectType, 4, meta(tga.MetaOutcomeClass, s.class, tga.MetaReplayedFrom, text(s.replayed)), func(a *tga.Artifact) {
		a.Effect = &tga.ToolEffect{
			CallID: m.call.ID, CallDigest: m.call.Digest, BatchTotalBytes: -1,
			Outcome: tga.Outcome{Status: or(s.status, tga.StatusSuccess), Summary: "done"},
		}
		for _, d := range s.documents {
			a.Effect.DocumentHashes = append(a.Effect.DocumentHashes, tga.DocumentHash{Pointer: d.Pointer, Hash: tga.Sum(d.Data), SizeBytes: int64(len(d.Data))})
		}
		if s.code != "" || a.Effect.Outcome.Status != tga.StatusSuccess {
			a.Effect.Outcome.Error = &tga.OutcomeError{Code: or(s.code, "TOOL_ERROR"), Message: "it said no"}
		}
	})
	return m
}

func (s spec) ledgerKey() ledger.Key {
	return ledger.Key{Namespace: or(s.namespace, tga.DefaultNamespace), Server: "payments", Tool: "charge", Key: or(s.key, "key-"+s.trace.String())}
}

// options are those of a small store in memory. With TGAD_TEST_SEAL=1 it seals what it stores.
func options(fs vfs.FS) engine.Options {
	o := engine.Options{
		FS: fs, Clock: func() time.Time { return start.Time() },
		MemTableBytes: 1 << 20, CacheBytes: 1 << 20, FirstSegmentBytes: 64 << 10, RewriteShare: -1,
	}
	if sealing() {
		o.Keyring = allStores
	}
	return o
}

// readable are the options of a store that seals nothing: of tests that look for what is stored in
// the bytes on disk, or change it there.
func readable(fs vfs.FS) engine.Options {
	o := options(fs)
	o.Keyring = nil
	return o
}

// sealing reports whether the tests' stores have a key ring; allStores is the one that all of
// them have.
func sealing() bool { return os.Getenv("TGAD_TEST_SEAL") == "1" }

var allStores = new(chaintest.Ring)

// open opens a store that is checked and closed when the test ends.
func open(t testing.TB, dir string, o engine.Options) *engine.DB {
	t.Helper()
	db, err := engine.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if db.Stats().Poisoned == "" {
			check(t, db)
		}
		if err := db.Close(); err != nil && db.Stats().Poisoned == "" {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

// check fails the test for each problem of a store that is open.
func check(t testing.TB, db *engine.DB) engine.Report {
	t.Helper()
	rep, err := db.Check(context.Background())
	if tga.CodeOf(err) == tga.StoreUnavailable {
		return rep // closed by the test itself
	}
	if err != nil {
		t.Errorf("check: %v", err)
	}
	for _, p := range rep.Problems {
		t.Errorf("check: %s", p)
	}
	return rep
}

func mem(t testing.TB) *engine.DB { t.Helper(); return open(t, "store", options(vfs.NewMem())) }

func acquire(t testing.TB, db *engine.DB, trace tga.ID) chain.Lease {
	t.Helper()
	lease, err := db.Acquire(context.Background(), trace)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func append_(t testing.TB, db *engine.DB, lease chain.Lease, b chain.Batch) chain.Appended {
	t.Helper()
	out, err := db.Append(context.Background(), lease, b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// run appends whole calls, begin and end apart.
func run(t testing.TB, db *engine.DB, specs ...spec) {
	t.Helper()
	for _, s := range specs {
		m := s.make(t)
		lease := acquire(t, db, s.trace)
		append_(t, db, lease, m.begin())
		append_(t, db, lease, m.end())
		db.Release(lease)
	}
}

func wantCode(t testing.TB, err error, code tga.Code) {
	t.Helper()
	if tga.CodeOf(err) != code {
		t.Errorf("error is %v, want %s", err, code)
	}
}

// noise returns 64·n hex digits that do not compress to less than half.
func noise(seed uint64, n int) string {
	var b strings.Builder
	d := tga.Sum([]byte(strconv.FormatUint(seed, 10)))
	for range n {
		d = tga.Sum(d[:])
		b.WriteString(d.String())
	}
	return b.String()
}

// entryKey is the key of an entry.
func entryKey(trace tga.ID, seq uint64) []byte { return keyspace.AppendEntry(nil, trace, seq) }

// noisy is an answer of 64·n bytes that does not compress to less than half.
func noisy(seed uint64, n int) []chain.Document {
	return []chain.Document{{Pointer: tga.PointerResult, Data: []byte(noise(seed, n))}}
}
