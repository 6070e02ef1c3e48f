package ledger

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// The golden file, as docs/FORMAT.md describes it.
type vectorFile struct {
	Decisions []struct {
		Name   string
		Record *vectorRecord
		Query  struct {
			TraceID                        tga.ID     `json:"trace_id"`
			RequestDigest                  tga.Digest `json:"request_digest"`
			Profile                        string
			Holder                         string
			Licence                        vectorLicence
			Retry, Remote, Suspect, Waited bool
			Now                            tga.Millis
			NewestTS                       tga.Millis `json:"newest_ts"`
			SendTimeoutMS                  int64      `json:"send_timeout_ms"`
		}
		Want vectorDecision
	}
	Probe []struct {
		Answer string
		Fenced bool
		Want   string
	}
	Licences []struct {
		Name      string
		Licence   vectorLicence
		Explicit  bool
		ToolClass string `json:"tool_class"`
		Profile   string
		Want      vectorLicence
	}
	Records []struct {
		Name   string
		Record vectorRecord
		Hex    string
	}
	RefusedRecords []struct {
		Name, Hex string
		Code      tga.Code
	} `json:"refused_records"`
	DerivedKeys []struct {
		Scope, Step, Tool, Args, Key string
		Occurrence                   uint64
	} `json:"derived_keys"`
	Keys []struct {
		Namespace      string
		ServerID       string `json:"server_id"`
		ToolName       string `json:"tool_name"`
		IdempotencyKey string `json:"idempotency_key"`
		SHA256         tga.Digest
	}
	BeginIDs []struct {
		Namespace, Submitter string
		BeginID              string `json:"begin_id"`
		SHA256               tga.Digest
	} `json:"begin_ids"`
}

type vectorDecision struct {
	Action  string
	Code    tga.Code
	Attempt uint32
}

type vectorLicence struct {
	Kind          string
	WindowMS      int64 `json:"window_ms"`
	MarginMS      int64 `json:"margin_ms"`
	MaxInFlightMS int64 `json:"max_in_flight_ms"`
}

type vectorRecord struct {
	Status        string
	RequestDigest tga.Digest `json:"request_digest"`
	ToolCallID    *tga.ID    `json:"tool_call_id"`
	TraceID       *tga.ID    `json:"trace_id"`
	Seq           uint64
	Attempts      struct {
		Count, Unsent uint32
		UnsentMask    string `json:"unsent_mask"`
		First, Newest tga.Millis
		Epoch         string
		External      bool
		PermitDigest  tga.Digest `json:"permit_digest"`
	}
	Class          string
	Abandoned      bool
	EffectSeq      uint64     `json:"effect_seq"`
	EffectDigest   tga.Digest `json:"effect_digest"`
	ConfirmedAt    tga.Millis `json:"confirmed_at"`
	EvidenceDigest tga.Digest `json:"evidence_digest"`
}

func vectors(t *testing.T) vectorFile {
	t.Helper()
	raw, err := os.ReadFile("../test_vectors/tga/ledger_decisions.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectorFile
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (v vectorLicence) licence(t *testing.T) Licence {
	return Licence{
		Kind:        must[LicenceKind](t)(ParseLicence(v.Kind)),
		Window:      time.Duration(v.WindowMS) * time.Millisecond,
		Margin:      time.Duration(v.MarginMS) * time.Millisecond,
		MaxInFlight: time.Duration(v.MaxInFlightMS) * time.Millisecond,
	}
}

func (v *vectorRecord) record(t *testing.T) *Record {
	if v == nil {
		return nil
	}
	number := func(s string, base int) uint64 {
		if s == "" {
			return 0
		}
		return must[uint64](t)(strconv.ParseUint(s, base, 64))
	}
	r := &Record{
		Status: must[Status](t)(ParseStatus(v.Status)), RequestDigest: v.RequestDigest, Seq: v.Seq,
		Attempts: Attempts{
			Count: v.Attempts.Count, Unsent: v.Attempts.Unsent, UnsentMask: number(v.Attempts.UnsentMask, 16),
			First: v.Attempts.First, Newest: v.Attempts.Newest, Epoch: number(v.Attempts.Epoch, 10),
			External: v.Attempts.External, Permit: v.Attempts.PermitDigest,
		},
		Abandoned: v.Abandoned, EffectSeq: v.EffectSeq, EffectDigest: v.EffectDigest,
		ConfirmedAt: v.ConfirmedAt, EvidenceDigest: v.EvidenceDigest,
	}
	if v.Class != "" {
		r.Class = must[Class](t)(ParseClass(v.Class))
	}
	if v.ToolCallID != nil {
		r.ToolCallID, r.TraceID = *v.ToolCallID, *v.TraceID
	}
	return r
}

func TestDecisionVectors(t *testing.T) {
	v := vectors(t)
	for _, row := range v.Decisions {
		t.Run(row.Name, func(t *testing.T) {
			r := row.Record.record(t)
			if r != nil && r.flaw() != "" {
				t.Fatalf("the vector's record cannot be: %s", r.flaw())
			}
			d := Decide(Query{
				Record: r, Trace: row.Query.TraceID, Request: row.Query.RequestDigest,
				Profile: must[Profile](t)(ParseProfile(row.Query.Profile)),
				Holder:  must[Liveness](t)(ParseLiveness(row.Query.Holder)),
				Licence: row.Query.Licence.licence(t),
				Retry:   row.Query.Retry, Remote: row.Query.Remote, Suspect: row.Query.Suspect, Waited: row.Query.Waited,
				Now: row.Query.Now, NewestTS: row.Query.NewestTS,
				SendTimeout: time.Duration(row.Query.SendTimeoutMS) * time.Millisecond,
			})
			if got := (vectorDecision{d.Action.String(), d.Code, d.Attempt}); got != row.Want {
				t.Errorf("got %+v (%s), want %+v", got, d.Reason, row.Want)
			}
		})
	}
	for _, row := range v.Probe {
		r := &Record{Status: Reserved, Attempts: Attempts{Count: 1}}
		answer := must[ProbeAnswer](t)(ParseProbeAnswer(row.Answer))
		if d := DecideProbe(r, answer, row.Fenced); d.Action.String() != row.Want {
			t.Errorf("probe %s, fenced %v: got %v, want %s", row.Answer, row.Fenced, d.Action, row.Want)
		}
	}
}

func TestEffectiveLicenceVectors(t *testing.T) {
	for _, row := range vectors(t).Licences {
		got := Effective(row.Licence.licence(t), row.Explicit, row.ToolClass, must[Profile](t)(ParseProfile(row.Profile)))
		if want := row.Want.licence(t); got != want {
			t.Errorf("%s: got %+v, want %+v", row.Name, got, want)
		}
	}
}

func TestRecordVectors(t *testing.T) {
	v := vectors(t)
	for _, row := range v.Records {
		want := row.Record.record(t)
		b := must[[]byte](t)(want.AppendBinary([]byte("before")))
		if got := hex.EncodeToString(b); got != hex.EncodeToString([]byte("before"))+row.Hex {
			t.Errorf("%s: encoded\n%s, want\n%s", row.Name, got, row.Hex)
		}
		got := must[*Record](t)(DecodeRecord(must[[]byte](t)(hex.DecodeString(row.Hex))))
		if *got != *want {
			t.Errorf("%s: decoded %+v, want %+v", row.Name, got, want)
		}
	}
	for _, row := range v.RefusedRecords {
		r, err := DecodeRecord(must[[]byte](t)(hex.DecodeString(row.Hex)))
		if !errors.Is(err, row.Code) || r != nil {
			t.Errorf("%s: got %+v, %v, want %s", row.Name, r, err, row.Code)
		}
	}
}

func TestKeyVectors(t *testing.T) {
	for _, row := range vectors(t).Keys {
		k := Key{row.Namespace, row.ServerID, row.ToolName, row.IdempotencyKey}
		if got := tga.Digest(k.Hash()); got != row.SHA256 {
			t.Errorf("%+v: got %v, want %v", k, got, row.SHA256)
		}
	}
	for _, row := range vectors(t).BeginIDs {
		if got := tga.Digest(BeginHash(row.Namespace, row.Submitter, row.BeginID)); got != row.SHA256 {
			t.Errorf("%+v: got %v", row, got)
		}
	}
	if len(vectors(t).BeginIDs) < 5 || BeginHash("", "s", "b") != BeginHash(tga.DefaultNamespace, "s", "b") {
		t.Error("the vectors of begin ids are missing, or no namespace is not the default one")
	}
}
