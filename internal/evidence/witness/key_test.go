package witness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/schemas/tga"
)

// TestKeyIsThatOfOthers: another implementation reads the same key from the same file, and each verifies
// what the other signed.
func TestKeyIsThatOfOthers(t *testing.T) {
	secret, public, err := NewKey("witness.example/w")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000, 5)
	k, err := ParseKey(secret, func() time.Time { return at })
	if err != nil || k.Public != public {
		t.Fatalf("%v, %v, want %s", k, err, public)
	}
	theirs, err := fnote.NewSignerForCosignatureV1(secret)
	if err != nil || theirs.Name() != k.Name() || theirs.KeyHash() != k.KeyHash() {
		t.Fatalf("%v, %v", theirs, err)
	}
	v, err := fnote.NewVerifierForCosignatureV1(public)
	if err != nil {
		t.Fatal(err)
	}
	text := (&log{key: storeKey(t, origin)}).head(3).Text()
	for _, by := range []note.Signer{k, theirs} {
		raw, err := note.Sign(&note.Note{Text: text}, by)
		if err != nil {
			t.Fatal(err)
		}
		n, err := note.Open(raw, note.VerifierList(v))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := note.Open(raw, note.VerifierList(k)); err != nil {
			t.Error(err)
		}
		if got, err := fnote.CoSigV1Timestamp(n.Sigs[0]); err != nil || by == note.Signer(k) && got.Unix() != at.Unix() {
			t.Errorf("signed at %v, %v", got, err)
		}
	}
}

func TestKeysOfStoresAndWitnessesAreApart(t *testing.T) {
	secret, public, err := NewKey("witness.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.ParseSigner(secret); err == nil {
		t.Error("a store signs with the key of a witness")
	}
	if _, err := note.NewVerifier(public); err == nil {
		t.Error("the key of a witness is taken for that of a store")
	}
	plain, _, err := checkpoint.NewKey("witness.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "x", plain, public, secret + "A", secret[:len(secret)-8], strings.Replace(secret, "witness", "Witness", 1), "PRIVATE+KEY+a+b+c"} {
		if _, err := ParseKey(bad, time.Now); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%q: %v", bad, err)
		} else if len(bad) > 40 && strings.Contains(err.Error(), bad[len(bad)-20:]) {
			t.Errorf("the error has a part of the key: %v", err)
		}
	}
	if _, _, err := NewKey("two words"); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("two words: %v", err)
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(fixedWitness+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := ReadKey(path); err != nil || k.Name() != "witness.example" {
		t.Errorf("%v, %v", k, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKey(path); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("everybody can read it: %v", err)
	}
	if _, err := ReadKey(path + ".absent"); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("no file: %v", err)
	}
}
