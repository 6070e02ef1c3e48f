package fuzz

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
	"time"
)

// fuzzer is the part of *testing.F that a target uses, so that a plain loop can drive the target too.
type fuzzer interface {
	Helper()
	Fatal(args ...any)
	Add(args ...any)
	Fuzz(body any)
}

var targets = map[string]func(fuzzer){
	"CanonicalAgreesWithJCS":  fuzzCanonicalAgreesWithJCS,
	"Config":                  fuzzConfig,
	"DecodeArtifact":          fuzzDecodeArtifact,
	"DecodeCheckpoint":        fuzzDecodeCheckpoint,
	"DecodeFrame":             fuzzDecodeFrame,
	"DecodeLogEntry":          fuzzDecodeLogEntry,
	"DecodeNote":              fuzzDecodeNote,
	"Keyring":                 fuzzKeyring,
	"DecodeSealedFrame":       fuzzDecodeSealedFrame,
	"DecodeNoteFrame":         fuzzDecodeNoteFrame,
	"DecodeRecord":            fuzzDecodeRecord,
	"EncodersAgreeWithJCS":    fuzzEncodersAgreeWithJCS,
	"GateAgainstEncodingJSON": fuzzGateAgainstEncodingJSON,
	"NoteBodies":              fuzzNoteBodies,
	"Number":                  fuzzNumber,
	"ParseKey":                fuzzParseKey,
	"ReplayTamper":            fuzzReplayTamper,
	"Request":                 fuzzRequest,
	"SegmentFlip":             fuzzSegmentFlip,
	"VerifyExport":            fuzzVerifyExport,
	"VerifySegment":           fuzzVerifySegment,
}

// TestMutatedInputs drives every target with mutations of its seeds. It has no coverage feedback and is many
// times as fast as the fuzzer. TGAD_INPUT_TIME is the time for each target, and TGAD_SEED is the random
// seed.
func TestMutatedInputs(t *testing.T) {
	var until time.Duration
	if text := os.Getenv("TGAD_INPUT_TIME"); text != "" {
		var err error
		if until, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	var seed uint64
	if text := os.Getenv("TGAD_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range targets {
		t.Run(name, func(t *testing.T) {
			l := &loop{T: t, r: rand.New(rand.NewPCG(seed, 1)), until: until}
			target(l)
			if l.n < least {
				t.Errorf("%d inputs were tried", l.n)
			}
			fmt.Printf("%s: %d inputs\n", name, l.n)
		})
	}
}

// least is the least number of inputs that each target gets.
const least = 500

// loop is a fuzzer that mutates its seeds until its time is over.
type loop struct {
	*testing.T
	r     *rand.Rand
	until time.Duration
	seeds [][]any
	n     int
}

func (l *loop) Add(args ...any) { l.seeds = append(l.seeds, args) }

func (l *loop) Fuzz(body any) {
	if len(l.seeds) == 0 {
		l.Fatal("a target without seeds")
	}
	f, end := reflect.ValueOf(body), time.Now().Add(l.until)
	one, single := body.(func(*testing.T, []byte))
	for ; l.n%least != 0 || l.n == 0 || time.Now().Before(end); l.n++ {
		seed := l.seeds[l.r.IntN(len(l.seeds))]
		if single {
			one(l.T, l.mutate(seed[0].([]byte)))
			continue
		}
		args := []reflect.Value{reflect.ValueOf(l.T)}
		for _, v := range seed {
			args = append(args, l.value(v))
		}
		f.Call(args)
	}
}

// value returns a value of the type of v, either near v or arbitrary.
func (l *loop) value(v any) reflect.Value {
	switch v := v.(type) {
	case []byte:
		return reflect.ValueOf(l.mutate(v))
	case string:
		return reflect.ValueOf(string(l.mutate([]byte(v))))
	}
	to := reflect.New(reflect.TypeOf(v)).Elem()
	near, far := int64(l.r.IntN(9)-4), l.r.Uint64()>>l.r.IntN(64)
	switch from := reflect.ValueOf(v); {
	case from.CanUint() && l.r.IntN(2) == 0:
		to.SetUint(from.Uint() + uint64(near))
	case from.CanUint():
		to.SetUint(far)
	case l.r.IntN(2) == 0:
		to.SetInt(from.Int() + near)
	default:
		to.SetInt(int64(far))
	}
	return to
}

// tokens are put into inputs: the tokens of the formats, and some that are close to them.
var tokens = [][]byte{
	[]byte(`{`), []byte(`}`), []byte(`[`), []byte(`]`), []byte(`,`), []byte(`:`), []byte(`"`), []byte(`\`), []byte(`\u0000`), []byte(`\ud800`),
	[]byte(`null`), []byte(`true`), []byte(`-0`), []byte(`1e400`), []byte(`9007199254740993`), []byte(`0.1`), []byte(`"_digest":`), []byte(`"trace_id":`),
	[]byte("\xff"), []byte("\xed\xa0\x80"), {0}, {0, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, []byte("\n"), []byte("\u2028"), []byte("\U0001f600"),
}

// mutate changes one to four places of a copy of a seed.
func (l *loop) mutate(seed []byte) []byte {
	r := l.r
	b := bytes.Clone(seed)
	for range 1 + r.IntN(4) {
		at, end := 0, 0
		if len(b) > 0 {
			at = r.IntN(len(b))
			end = at + r.IntN(min(len(b)-at, 1+r.IntN(64))) + 1
		}
		switch r.IntN(8) {
		case 0: // an empty seed has nothing to flip
			if len(b) > 0 {
				b[at] ^= 1 << r.IntN(8)
			}
		case 1:
			if len(b) > 0 {
				b[at] = byte(r.Uint32())
			}
		case 2:
			b = append(b[:at:at], b[end:]...)
		case 3:
			b = append(b[:end:end], b[at:]...)
		case 4:
			token := tokens[r.IntN(len(tokens))]
			b = append(b[:at:at], append(bytes.Clone(token), b[at:]...)...)
		case 5:
			token := tokens[r.IntN(len(tokens))]
			b = append(b[:at:at], append(bytes.Clone(token), b[end:]...)...)
		case 6:
			b = b[:at]
		case 7: // the end of another seed
			if other, ok := l.seeds[r.IntN(len(l.seeds))][0].([]byte); ok && len(other) > 0 {
				b = append(b[:at:at], other[r.IntN(len(other)):]...)
			}
		}
	}
	return b
}
