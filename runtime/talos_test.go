package runtime_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/talostest"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// talosRules ask people about two tools and refuse a third.
var talosRules = runtime.Rules{Rules: []runtime.Rule{
	{Tool: "asked", Decision: tga.NeedsApproval}, {Tool: "refused", Decision: tga.Deny}, {Decision: tga.Approve},
}}

// talos is a bench under profile talos with a real key ring.
func talos(t *testing.T, policy runtime.Policy) (*bench, *capability.Ring) {
	t.Helper()
	var ring *capability.Ring
	b := setup(t, policy, func(b *bench) {
		var err error
		if ring, err = capability.Open(filepath.Join(t.TempDir(), "keys"), "tgad", "tgad", capability.Options{Clock: b.clock}); err != nil {
			t.Fatal(err)
		}
		b.sup, b.opts.Profile, b.opts.Trust.Capabilities, b.opts.MaxAnswer = talosRules, ledger.Talos, ring, 100
	})
	return b, ring
}

// wantTalos asks a validator about every artifact of the trace, and returns their types.
func (b *bench) wantTalos(trace tga.ID) (types []tga.ArtifactType) {
	b.t.Helper()
	compiled, err := talostest.Compile()
	if err != nil {
		b.t.Fatal(err)
	}
	log, err := b.db.Load(b.t.Context(), trace)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range []*tga.Artifact{log.Request, log.Decision, log.Call, log.Effect} {
		if a == nil {
			continue
		}
		types = append(types, a.Type)
		if err := errors.Join(compiled.Validate(a.Canonical), a.CheckTalos()); err != nil {
			b.t.Errorf("%s: %v", a.Canonical, err)
		}
	}
	return types
}

// TestProfileTalosWritesWhatItsSchemasTake makes calls with all kinds of ends, and validates every
// written artifact with the schemas.
func TestProfileTalosWritesWhatItsSchemasTake(t *testing.T) {
	serial.Test(t)
	fails := func(r runtime.Reply) func(*bench) (runtime.Result, error) {
		return func(b *bench) (runtime.Result, error) {
			b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return r, nil }
			return b.call(charge("k"))
		}
	}
	doubt := func(b *bench) runtime.Result {
		b.tool.answer = unknown
		res, err := b.call(charge("k"))
		wantCode(b.t, err, tga.EffectInDoubt)
		return res
	}
	asked := func(b *bench, deadline time.Time) runtime.Result {
		req := charge("k")
		req.Tool, req.Deadline = "asked", deadline
		res, err := b.call(req)
		wantCode(b.t, err, tga.EscalationRequired)
		return res
	}
	whole := []tga.ArtifactType{tga.RequestType, tga.DecisionType, tga.CallType, tga.EffectType}
	for name, x := range map[string]struct {
		do   func(b *bench) (runtime.Result, error)
		want []tga.ArtifactType
	}{
		"success": {func(b *bench) (runtime.Result, error) { return b.call(charge("k")) }, whole},
		"served": {func(b *bench) (runtime.Result, error) {
			b.wantTalos(b.mustCall(charge("k")).TraceID)
			return b.call(charge("k"))
		}, whole},
		"failure with a code alone": {fails(runtime.Reply{Status: tga.StatusFailure, ErrorCode: "card_declined"}), whole},
		"failure without a word":    {fails(runtime.Reply{Status: tga.StatusDenied}), whole},
		"a foreign status":          {fails(runtime.Reply{Status: "odd", ErrorMessage: "m"}), whole},
		"a long answer":             {fails(ok(`"` + strings.Repeat("x", 100) + `"`)), whole},
		"a redacted answer":         {fails(runtime.Reply{Status: tga.StatusSuccess, Result: []byte("1"), Received: tga.Sum(nil), ReceivedBytes: 9}), whole},
		"changes": {fails(runtime.Reply{Status: tga.StatusSuccess, Result: []byte("1"), Changes: []tga.StateChange{
			{ResourceType: "file", ResourceID: "a", Operation: "create"}}}), whole},
		"not sent": {func(b *bench) (runtime.Result, error) {
			b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return runtime.Reply{}, errDial }
			return b.call(charge("k"))
		}, whole},
		"resolved": {func(b *bench) (runtime.Result, error) {
			return b.rt.Resolve(b.t.Context(), doubt(b).TraceID, runtime.Resolution{Reply: runtime.Reply{Status: tga.StatusFailure}, Who: "ann", Evidence: []byte("line 7")})
		}, whole},
		"abandoned": {func(b *bench) (runtime.Result, error) {
			return b.rt.Abandon(b.t.Context(), doubt(b).TraceID, "ann", "")
		}, whole},
		"approved by people": {func(b *bench) (runtime.Result, error) {
			return b.rt.Decide(b.t.Context(), asked(b, time.Time{}).TraceID, yes)
		}, whole},
		"approved too late to be sent": {func(b *bench) (runtime.Result, error) {
			req := charge("k")
			req.Tool, req.Deadline = "asked", b.clock().Add(time.Minute)
			begun, err := b.rt.Begin(b.t.Context(), runtime.BeginRequest{Request: req, BeginID: "begin-1"})
			if err != nil {
				return begun.Result, err
			}
			if _, err := b.rt.Decide(b.t.Context(), begun.Result.TraceID, yes); err != nil {
				return begun.Result, err
			}
			b.advance(time.Hour) // its executor does not ask for it in time
			got, err := b.rt.Recover(b.t.Context(), begun.Result.TraceID)
			wantCode(b.t, err, tga.ToolTimeout)
			return got, nil
		}, whole},
		"a question that expired with the deadline": {func(b *bench) (runtime.Result, error) {
			res := asked(b, b.clock().Add(time.Minute))
			b.advance(time.Hour)
			return b.rt.Decide(b.t.Context(), res.TraceID, yes)
		}, whole[:2]},
		"denied by people": {func(b *bench) (runtime.Result, error) {
			no := yes
			no.Approve = false
			return b.rt.Decide(b.t.Context(), asked(b, time.Time{}).TraceID, no)
		}, whole[:2]},
		"denied by a rule": {func(b *bench) (runtime.Result, error) {
			req := charge("k")
			req.Tool = "refused"
			return b.call(req)
		}, whole[:2]},
		"a remote executor": {func(b *bench) (runtime.Result, error) { return b.finish(b.begin("k", "begin-1"), ok("1")) }, whole},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := talos(t, park)
			res, err := x.do(b)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.wantTalos(res.TraceID); !slices.Equal(got, x.want) {
				t.Errorf("written are %v, want %v", got, x.want)
			}
		})
	}
}

// TestProfileTalosMintsWhatItChecks: the capability of an approval by a rule is signed, is for
// exactly this call, and is checked before the call is sent. A read call gets one too.
func TestProfileTalosMintsWhatItChecks(t *testing.T) {
	for _, policy := range []runtime.Policy{park, {Class: tga.ClassRead}} {
		b, ring := talos(t, policy)
		res := b.mustCall(charge("k"))
		log, err := b.db.Load(t.Context(), res.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		p, token := log.Request.Request.Proposal, log.Decision.Decision.MintedCapability
		g := runtime.Grant{
			TraceID: log.ID, PlanID: log.Request.PlanID, Server: p.ToolServer, Tool: p.ToolName, ArgsDigest: tga.Sum(p.Args),
			ReadOnly: policy.Class == tga.ClassRead,
		}
		if err := ring.Check(t.Context(), token, g); err != nil || log.Call.Call.CapabilityDigest != tga.Sum([]byte(token)) {
			t.Errorf("%v, the call names %s", err, log.Call.Call.CapabilityDigest)
		}
	}
	if _, err := runtime.New(setup(t, park).db, &tool{}, talosRules, runtime.Options{Profile: ledger.Talos}); !errors.Is(err, tga.ValidationError) {
		t.Errorf("without a key ring: %v", err)
	}
}

// TestProfileTalosTakesTheNamesOfItsSchemas: a name that the schemas do not accept is refused
// before anything is written, on both routes; other profiles accept it.
func TestProfileTalosTakesTheNamesOfItsSchemas(t *testing.T) {
	b, _ := talos(t, park)
	other := setup(t, park)
	for name, good := range map[string]bool{
		"a": true, "z-9_0": true, strings.Repeat("a", 128): true, "A": false, "a.b": false, "a/b": false,
	} {
		for _, of := range []func(*runtime.Request){func(r *runtime.Request) { r.Server = name }, func(r *runtime.Request) { r.Tool = name }} {
			req := charge("k")
			of(&req)
			req.TraceID = tga.ID(uuid.Must(uuid.NewV7()))
			_, err := b.call(req)
			_, begun := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: req, BeginID: "b"})
			if good && err != nil || !good && (!errors.Is(err, tga.ValidationError) || !errors.Is(begun, tga.ValidationError)) {
				t.Errorf("%+v: %v, %v", req, err, begun)
			}
			if !good {
				b.wantNothing(req.TraceID)
				req.TraceID = tga.ID{}
				other.mustCall(req)
			}
		}
	}
}
