package workstate

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tgad/tgad/schemas/tga"
)

// TestListIsAFunctionOfItsItems: however a list was made, equal items are one node, and
// it reads back.
func TestListIsAFunctionOfItsItems(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items [][]byte
		l := emptyList
		for range rapid.IntRange(0, 8).Draw(t, "appends") {
			var more [][]byte
			for range rapid.IntRange(0, 200).Draw(t, "items") {
				more = append(more, []byte(fmt.Sprint(rapid.IntRange(0, 1000).Draw(t, "item"))))
			}
			items, l = append(items, more...), l.append(more)
		}
		whole := listOf(items)
		if l.node().digest != whole.node().digest || !l.same(whole) || l.count != len(items) {
			t.Fatalf("a list of %d items depends on how it was made", len(items))
		}
		back, err := listFrom(whole.node())
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Collect(back.all()); !slices.EqualFunc(got, items, bytes.Equal) {
			t.Fatalf("read back %q, want %q", got, items)
		}
		if n := len(items); n > 0 && !bytes.Equal(back.last(), items[n-1]) {
			t.Fatalf("last is %q", back.last())
		}
	})
}

// TestListSharesWhatIsCommon: if an item is removed at the front of a long list, or added at
// its end, all but a few nodes stay the same.
func TestListSharesWhatIsCommon(t *testing.T) {
	var items [][]byte
	for i := range 100_000 {
		items = append(items, fmt.Appendf(nil, `{"step":%d}`, i))
	}
	have := map[tga.Digest]bool{}
	old := listOf(items)
	old.node().walk(func(tga.Digest) bool { return false }, func(n *Node) { have[n.digest] = true })
	for name, l := range map[string]*list{
		"removed at the front":  listOf(items[1:]),
		"added at the end":      old.append([][]byte{[]byte("more")}),
		"changed in the middle": listOf(slices.Concat(items[:50_000], [][]byte{[]byte("other")}, items[50_001:])),
	} {
		fresh := 0
		l.node().walk(func(d tga.Digest) bool { return have[d] }, func(*Node) { fresh++ })
		if fresh > 8 {
			t.Errorf("%s: %d of %d nodes are new", name, fresh, len(have))
		}
	}
}

// TestTrieIsAFunctionOfItsPairs: however a map was made, equal maps are one node.
func TestTrieIsAFunctionOfItsPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model, root := map[string]string{}, emptyTrie
		for range rapid.IntRange(0, 300).Draw(t, "edits") {
			key := fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "key"))
			if rapid.IntRange(0, 1).Draw(t, "edit") == 0 {
				delete(model, key)
				root = triePut(root, key, nil)
				continue
			}
			value := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "value"))
			model[key] = value
			root = triePut(root, key, []byte(value))
		}
		var pairs []pair
		for _, key := range slices.Sorted(maps.Keys(model)) {
			pairs = append(pairs, pair{key, []byte(model[key])})
		}
		if trieOf(pairs, 0).digest != root.digest || trieCount(root) != len(model) {
			t.Fatalf("a map of %d keys depends on how it was made", len(model))
		}
		if err := checkTrie(root); err != nil {
			t.Fatal(err)
		}
		for i := range 41 {
			key := fmt.Sprint(i)
			got, ok := trieGet(root, key)
			if want, has := model[key]; ok != has || string(got) != want {
				t.Fatalf("key %s: %q, %v, want %q, %v", key, got, ok, want, has)
			}
		}
	})
}

// TestDamagedNodesAreRefused: bytes from outside are checked before they are used.
func TestDamagedNodesAreRefused(t *testing.T) {
	good := NewNode([]byte("data"), NewNode([]byte("kid"))).encode()
	for name, raw := range map[string][]byte{
		"empty":         {},
		"version":       append([]byte{2}, good[1:]...),
		"cut":           good[:20],
		"too many kids": {1, 200, 1},
	} {
		if _, _, err := decodeNode(raw); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s: %v, want STATE_CHECKSUM_MISMATCH", name, err)
		}
	}
	for name, n := range map[string]*Node{
		"count over items": NewNode([]byte{2, 1, 'x'}),
		"bytes left":       NewNode([]byte{1, 1, 'x', 'y'}),
		"length over end":  NewNode([]byte{1, 9, 'x'}),
	} {
		if _, err := listFrom(n); err == nil {
			t.Errorf("list, %s: read", name)
		}
		if err := checkTrie(n); err == nil {
			t.Errorf("map, %s: read", name)
		}
	}
}
