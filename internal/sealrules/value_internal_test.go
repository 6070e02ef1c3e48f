package sealrules

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func storeValue(t *testing.T, at, value []byte, key chain.KeyID, keys chain.Keys) []byte {
	t.Helper()
	stored, err := Store(at, value, key, keys)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// TestStoredValueRoundTrip: each value is read back, sealed or not, whatever its first bytes are. A sealed
// form does not contain the value, and a plain value is stored unchanged.
func TestStoredValueRoundTrip(t *testing.T) {
	ring, at := &chaintest.Ring{}, []byte("w and a key")
	sealed := storeValue(t, at, []byte("nobody reads this"), 7, ring)
	for _, value := range [][]byte{{}, {0}, []byte("nobody reads this"), []byte(valueMark), []byte(valueMark[:6]), []byte(valueMark + "\x01 and more"), sealed, make([]byte, 70<<10)} {
		for _, key := range []chain.KeyID{0, 1, 1 << 40} {
			stored := storeValue(t, at, value, key, ring)
			if got := KeyOf(stored); got != key {
				t.Errorf("%.20q under key %d: it says key %d", value, key, got)
			}
			marked := bytes.HasPrefix(value, []byte(valueMark))
			if plain := key == 0 && !marked; plain != bytes.Equal(stored, value) {
				t.Errorf("%.20q under key %d is stored as %.20q", value, key, stored)
			}
			if key != 0 && len(value) > 8 && bytes.Contains(stored, value) {
				t.Errorf("%.20q can be read", value)
			}
			got, err := Open(at, stored, ring)
			if err != nil || got == nil || !bytes.Equal(got, value) {
				t.Errorf("%.20q under key %d is read as %.20q, %v", value, key, got, err)
			}
			if key == 0 {
				if got, err := Open(at, stored, nil); err != nil || !bytes.Equal(got, value) {
					t.Errorf("without a ring %.20q is read as %.20q, %v", value, got, err)
				}
			}
		}
	}
}

// TestStoredValueOpensNowhereElse: a sealed value under another key or kind of the store, or with a changed
// or missing byte, is damaged.
func TestStoredValueOpensNowhereElse(t *testing.T) {
	ring, at := &chaintest.Ring{}, []byte("a0123456789abcdef")
	stored := storeValue(t, at, []byte("a question"), 7, ring)
	for _, other := range []string{"w0123456789abcdef", "a0123456789abcdee", "a0123456789abcde", ""} {
		if _, err := Open([]byte(other), stored, ring); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("it opens under %q: %v", other, err)
		}
	}
	for i := len(valueMark); i < len(stored); i++ {
		bad := bytes.Clone(stored)
		bad[i] ^= 1
		want := tga.StateChecksumMismatch
		if _, err := Open(at, bad, ring); tga.CodeOf(err) != want {
			t.Errorf("byte %d: %v", i, err)
		}
		if _, err := Open(at, stored[:i], ring); tga.CodeOf(err) != want {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	needless := append([]byte(valueMark), tga.SealedValueVersion, 0, 0, 0, 0, 0, 0, 0, 0, 'x')
	if _, err := Open(at, needless, ring); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("a plain value has two forms: %v", err)
	}
	newer := bytes.Clone(stored)
	newer[len(valueMark)]++
	if _, err := Open(at, newer, ring); tga.CodeOf(err) != tga.FormatTooNew {
		t.Errorf("of a newer version: %v", err)
	}
}

// TestValueWithoutItsKey: a value whose key is destroyed is erased. A value whose key is not available is
// unavailable, and never counts as absent.
func TestValueWithoutItsKey(t *testing.T) {
	at := []byte("w and a key")
	stored := storeValue(t, at, []byte("evidence"), 7, &chaintest.Ring{})
	down := &chaintest.Ring{Err: errors.New("the ring is down")}
	for name, c := range map[string]struct {
		keys chain.Keys
		want func(error) bool
	}{
		"destroyed": {&chaintest.Ring{Destroyed: map[chain.KeyID]bool{7: true}}, func(err error) bool { return errors.Is(err, chain.ErrKeyDestroyed) }},
		"no keys":   {chain.NoKeys{}, func(err error) bool { return errors.Is(err, chain.ErrKeyDestroyed) }},
		"no ring":   {nil, func(err error) bool { return tga.CodeOf(err) == tga.StoreUnavailable }},
		"down":      {down, func(err error) bool { return tga.CodeOf(err) == tga.StoreUnavailable }},
	} {
		if value, err := Open(at, stored, c.keys); value != nil || !c.want(err) || name != "destroyed" && name != "no keys" && errors.Is(err, chain.ErrKeyDestroyed) {
			t.Errorf("%s: %q, %v", name, value, err)
		}
	}
	for _, keys := range []chain.Keys{nil, chain.NoKeys{}, down, &chaintest.Ring{Destroyed: map[chain.KeyID]bool{7: true}}} {
		if _, err := Store(at, []byte("x"), 7, keys); tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("it is sealed with %v: %v", keys, err)
		}
	}
}

// TestGoldenSealedValues holds the sealed values to their published bytes.
func TestGoldenSealedValues(t *testing.T) {
	ring := &chaintest.Ring{}
	key := tga.Sum(binary.BigEndian.AppendUint64([]byte("key of a test "), 1<<32|7))
	type valueVector struct {
		Name   string `json:"name"`
		At     string `json:"at"`
		Value  string `json:"value"`
		KeyID  uint64 `json:"key_id"`
		Stored string `json:"stored"`
	}
	type vectors struct {
		Key    string        `json:"key"`
		Values []valueVector `json:"values"`
	}
	got := vectors{Key: hex.EncodeToString(key[:])}
	for _, v := range []struct {
		name, at, value string
		key             chain.KeyID
	}{
		{"sealed", "a0123456789abcdef", `{"trace_id":"0"}`, 1<<32 | 7},
		{"sealed, empty", "w0123456789abcdef0123456789abcdef", "", 1<<32 | 7},
		{"plain", "w0123456789abcdef0123456789abcdef", "evidence", 0},
		{"plain, with the mark", "w0123456789abcdef0123456789abcdef", valueMark + "\x01", 0},
	} {
		got.Values = append(got.Values, valueVector{v.name, hex.EncodeToString([]byte(v.at)), hex.EncodeToString([]byte(v.value)), uint64(v.key),
			hex.EncodeToString(storeValue(t, []byte(v.at), []byte(v.value), v.key, ring))})
	}
	raw, err := golden.Vectors.ReadFile("tga/sealed_values.json")
	var want vectors
	if err == nil {
		err = json.Unmarshal(raw, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	golden.HoldFormat(t, "SealedValueVersion", tga.SealedValueVersion, []byte(got.Values[0].Stored), []byte(got.Values[3].Stored))
}
