package checkpoint

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/schemas/tga"
)

func newWitnessKey(t *testing.T, name string) *fnote.Signer {
	t.Helper()
	secret, _, err := NewKey(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := fnote.NewSignerForCosignatureV1(secret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWitnessAddsItsSignatureAlone: whatever else a witness answers, the checkpoint with what is kept of the answer opens,
// for the store and for who trusts other witnesses too. Otherwise one witness could keep the store from its next start.
func TestWitnessAddsItsSignatureAlone(t *testing.T) {
	key, own, other := newSigner(t, origin), newWitnessKey(t, "witness.test"), newWitnessKey(t, "other.test")
	raw := signed(t, at(7), key)
	line := func(text string, s note.Signer) string {
		t.Helper()
		n, err := note.Sign(&note.Note{Text: text}, s)
		if err != nil {
			t.Fatal(err)
		}
		return string(n[len(text)+1:])
	}
	good := line(at(7).Text(), own)
	// loose is the same bytes in another base64: the bits that count for nothing are set.
	loose := func(line string) string {
		i := strings.LastIndex(line, "==")
		const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
		return line[:i-1] + string(digits[strings.IndexByte(digits, line[i-1])|1]) + line[i:]
	}
	if loose(good) == good {
		t.Fatal("the other base64 is the same")
	}
	var many strings.Builder
	for i := range 150 {
		many.WriteString(strings.Replace(good, "witness.test", fmt.Sprintf("w%d.test", i), 1))
	}
	for name, c := range map[string]struct {
		answer string
		kept   bool
	}{
		"its signature":                       {good, true},
		"twice":                               {good + good, true},
		"with another one of its own":         {good + line(at(8).Text(), own), true},
		"in other base64":                     {loose(good), true},
		"behind a stranger's in other base64": {loose(strings.Replace(good, "witness.test", "w.test", 1)) + good, true},
		"before a stranger's in other base64": {good + loose(strings.Replace(good, "witness.test", "w.test", 1)), true},
		"with a bad one of another witness":   {good + line(at(8).Text(), other), true},
		"with a bad one of the store":         {good + line(at(8).Text(), key), true},
		"among more than a note may have":     {many.String() + good, true},
		"before what is no signature":         {good + "x\n", true},
		"before a control character":          {good + "\x01\n", true},
		"behind an empty line":                {"\n" + good, true},
		"of the note with its signatures":     {"\n" + line(string(raw), own), false},
		"of another text":                     {line(at(8).Text(), own), false},
		"without an end":                      {strings.TrimSuffix(good, "\n"), false},
		"nothing":                             {"", false},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.answer)) }))
		w := &Witness{URL: srv.URL, Key: own.Verifier()}
		cosigned, err := w.Put(t.Context(), raw, nil)
		srv.Close()
		if !c.kept {
			if tga.CodeOf(err) != tga.PermissionDenied || cosigned != nil {
				t.Errorf("%s: %q, %v", name, cosigned, err)
			}
			continue
		}
		keys, kerr := TrustKeys(origin, key.Public, own.Verifier(), other.Verifier())
		if err != nil || kerr != nil {
			t.Errorf("%s: %v, %v", name, err, kerr)
			continue
		}
		whole := append(append(bytes.Clone(raw), cosigned...), line(at(7).Text(), other)...)
		if got, by, err := keys.Open(whole); err != nil || got != at(7) || len(by) != 2 || !w.Signed(whole) {
			t.Errorf("%s: %+v by %v, %v\n%s", name, got, by, err, whole)
		}
	}
}
