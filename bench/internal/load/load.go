// Package load makes the traces that benchmarks append: valid traces, each with new ids,
// whose artifacts have about a given size.
package load

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Maker makes the traces of one writer. It is not for concurrent use.
type Maker struct {
	rng         *rand.Rand
	prefix      uint64
	n           uint64
	size        int
	plan, agent tga.ID
	text        string
	bare        [4]int // canonical bytes of each type without filling
}

// makers numbers the makers, so that their keys differ.
var makers atomic.Uint64

// New returns a maker of artifacts of about size bytes each. The smallest legal
// artifact has some 550 to 800 bytes: below that, size says nothing.
func New(size int) *Maker {
	m := &Maker{prefix: makers.Add(1), size: size}
	m.rng = rand.New(rand.NewPCG(m.prefix, uint64(time.Now().UnixNano())))
	m.plan, m.agent = m.id(), m.id()
	m.text = words(m.rng, max(64<<10, 2*size))
	d := m.Next()
	for i, make := range []func() *tga.Artifact{d.MakeRequest, d.MakeDecision, d.MakeCall, d.MakeEffect} {
		a := make()
		if err := a.Seal(); err != nil {
			panic(fmt.Sprintf("load: %v", err))
		}
		m.bare[i] = len(a.Canonical) - len(unfilled)
	}
	return m
}

// words returns n bytes of text that compresses about as far as prose does.
func words(rng *rand.Rand, n int) string {
	vocabulary := make([]string, 2000)
	for i := range vocabulary {
		w := make([]byte, 3+rng.IntN(8))
		for j := range w {
			w[j] = "etaoinshrdlucmfwypvbgkqjxz"[min(rng.IntN(26), rng.IntN(26))]
		}
		vocabulary[i] = string(w)
	}
	out := make([]byte, 0, n+16)
	for len(out) < n {
		out = append(out, vocabulary[min(rng.IntN(2000), rng.IntN(2000))]...)
		out = append(out, ' ')
	}
	return string(out[:n])
}

// id makes a UUIDv7 of the present millisecond.
func (m *Maker) id() tga.ID {
	var id tga.ID
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	a, b := m.rng.Uint64(), m.rng.Uint64()
	for i := range 8 {
		id[8+i] = byte(a >> (8 * i))
	}
	id[6], id[7] = 0x70|byte(b)&0x0f, byte(b>>8)
	id[8] = id[8]&0x3f | 0x80
	return id
}

// Text returns n bytes of text.
func (m *Maker) Text(n int) string {
	if n <= 0 {
		return ""
	}
	at := m.rng.IntN(len(m.text) - n + 1)
	return m.text[at : at+n]
}

// fill returns the filling of an artifact, for the type at place i.
func (m *Maker) fill(i int) string {
	if m.bare[i] == 0 {
		return unfilled
	}
	return m.Text(m.size - m.bare[i])
}

// unfilled is the filling of an artifact whose bare size is being measured.
const unfilled = "x"

// Trace is one trace that is being made. Its Make functions return artifacts that are not yet
// sealed. Each needs the artifacts before it to be sealed. [Trace.Prepare] does most of the work.
type Trace struct {
	ID                              tga.ID
	Key                             string
	m                               *Maker
	args                            []byte
	Request, Decision, Call, Effect *tga.Artifact
}

// Next begins a trace.
func (m *Maker) Next() *Trace {
	m.n++
	return &Trace{ID: m.id(), Key: "order-" + strconv.FormatUint(m.prefix, 10) + "-" + strconv.FormatUint(m.n, 10), m: m}
}

// nonce returns 32 hex digits. It is cheap, because the work of a maker is part of what is
// measured.
func (m *Maker) nonce() string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], m.rng.Uint64())
	binary.BigEndian.PutUint64(raw[8:], m.rng.Uint64())
	return hex.EncodeToString(raw[:])
}

func (t *Trace) common(kind tga.ArtifactType) *tga.Artifact {
	return &tga.Artifact{
		Type: kind, ID: t.m.id(), TraceID: t.ID, PlanID: t.m.plan, TS: tga.MillisOf(time.Now()),
		Meta: tga.Meta{tga.MetaNonce: t.m.nonce()},
	}
}

func (t *Trace) proposal() tga.Proposal {
	return tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: t.args}
}

// Prepare makes the four artifacts without the parts that refer to each other.
func (t *Trace) Prepare() {
	t.request()
	t.decision()
	t.call()
	t.effect()
}

// MakeRequest makes the request; its arguments are its filling.
func (t *Trace) MakeRequest() *tga.Artifact {
	if t.Request == nil {
		t.request()
	}
	return t.Request
}

func (t *Trace) request() {
	note := t.m.fill(0)
	t.args = strconv.AppendUint(append(make([]byte, 0, len(note)+48), `{"amount":`...), t.m.n, 10)
	t.args = append(append(append(t.args, `,"note":"`...), note...), `"}`...)
	a := t.common(tga.RequestType)
	a.Request = &tga.ActionRequest{
		AgentID: t.m.agent, RiskLevel: tga.RiskWrite, Intent: "charge the customer once",
		Resources: []tga.Resource{{Kind: "service", ID: "payments"}}, Proposal: t.proposal(), IdempotencyKey: t.Key,
	}
	t.Request = a
}

// MakeDecision makes an approval.
func (t *Trace) MakeDecision() *tga.Artifact {
	if t.Decision == nil {
		t.decision()
	}
	d := t.Decision.Decision
	d.RequestID, d.RequestDigest = t.Request.ID, t.Request.Digest
	return t.Decision
}

func (t *Trace) decision() {
	t.Decision = t.common(tga.DecisionType)
	t.Decision.Meta["comment"] = t.m.fill(1)
	t.Decision.Decision = &tga.SupervisorDecision{Decision: tga.Approve, Rationale: "allowed by rule 1"}
}

// MakeCall makes the call, with the request's arguments.
func (t *Trace) MakeCall() *tga.Artifact {
	if t.Call == nil {
		t.call()
	}
	c := t.Call.Call
	c.DecisionID, c.DecisionDigest = t.Decision.ID, t.Decision.Digest
	return t.Call
}

func (t *Trace) call() {
	t.Call = t.common(tga.CallType)
	t.Call.Call = &tga.ToolCall{Call: t.proposal(), IdempotencyKey: t.Key, ToolClass: tga.ClassWrite, BatchTotalBytes: -1}
}

// MakeEffect makes a successful effect without documents.
func (t *Trace) MakeEffect() *tga.Artifact {
	a := t.linkedEffect()
	a.Meta["comment"] = t.m.fill(3)
	return a
}

// MakeAnswered makes a successful effect with the tool's answer beside it, a document of
// size bytes.
func (t *Trace) MakeAnswered(size int) (*tga.Artifact, []chain.Document) {
	a := t.linkedEffect()
	data := fmt.Appendf(nil, `{"text":"%s"}`, t.m.Text(size-len(`{"text":""}`)))
	a.Effect.DocumentHashes = []tga.DocumentHash{{Pointer: tga.PointerResult, Hash: tga.Sum(data), SizeBytes: int64(len(data))}}
	return a, []chain.Document{{Pointer: tga.PointerResult, Data: data}}
}

func (t *Trace) linkedEffect() *tga.Artifact {
	if t.Effect == nil {
		t.effect()
	}
	e := t.Effect.Effect
	e.CallID, e.CallDigest = t.Call.ID, t.Call.Digest
	return t.Effect
}

func (t *Trace) effect() {
	t.Effect = t.common(tga.EffectType)
	t.Effect.Effect = &tga.ToolEffect{BatchTotalBytes: -1, Outcome: tga.Outcome{Status: tga.StatusSuccess, Summary: "done"}}
}

// Begin seals request, decision and call, for one append that leads to EXECUTING.
func (t *Trace) Begin() (chain.Batch, error) {
	var b chain.Batch
	for _, make := range []func() *tga.Artifact{t.MakeRequest, t.MakeDecision, t.MakeCall} {
		a := make()
		if err := a.Seal(); err != nil {
			return b, err
		}
		b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: a})
	}
	return b, nil
}

// End seals an effect with an answer of size bytes.
func (t *Trace) End(size int) (chain.Batch, error) {
	a, documents := t.MakeAnswered(size)
	if err := a.Seal(); err != nil {
		return chain.Batch{}, err
	}
	return chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: a, Documents: documents}}}, nil
}
