package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/wire"
)

// TestKeptValuesOverTheSocket: changed by who knows them, listed in pages.
func TestKeptValuesOverTheSocket(t *testing.T) {
	b := start(t, "")
	ctx := t.Context()
	value := bytes.Repeat([]byte{7}, 900<<10)
	const n = 9 // more than a page
	for i := range n {
		now, changed, err := b.client.Keep(ctx, runtime.KeepRequest{Server: "s", Name: fmt.Sprint("v", i), Value: value})
		if err != nil || !changed || !bytes.Equal(now.Value, value) {
			t.Fatalf("value %d: %v %v", i, changed, err)
		}
	}
	now, changed, err := b.client.Keep(ctx, runtime.KeepRequest{Server: "s", Name: "v0", Value: []byte("other")})
	if err != nil || changed || !bytes.Equal(now.Value, value) {
		t.Errorf("a value that is not known: %v %v, %d bytes", changed, err, len(now.Value))
	}
	seen := map[string]bool{}
	for k, err := range b.client.Kept(ctx, "", "s") {
		if err != nil {
			t.Fatal(err)
		}
		if seen[k.Name] || !bytes.Equal(k.Value, value) {
			t.Errorf("%s: twice, or %d bytes", k.Name, len(k.Value))
		}
		seen[k.Name] = true
	}
	if len(seen) != n {
		t.Errorf("%d values are listed, want %d", len(seen), n)
	}
	// A page goes on although the value that the last one ended with is gone.
	var first wire.KeptValues
	if _, _, body := b.raw("GET", "/v1/kept?tool_server=s", ""); json.Unmarshal(body, &first) != nil {
		t.Fatalf("%s", body)
	}
	if _, changed, err := b.client.Keep(ctx, runtime.KeepRequest{Server: "s", Name: first.Next, Old: value}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	var second wire.KeptValues
	if _, _, body := b.raw("GET", "/v1/kept?tool_server=s&after="+first.Next, ""); json.Unmarshal(body, &second) != nil {
		t.Fatalf("%s", body)
	}
	if len(first.Values)+len(second.Values) < n-1 || second.Values[0].Name == first.Values[0].Name {
		t.Errorf("pages of %d and %d values of %d", len(first.Values), len(second.Values), n)
	}
	for k := range b.client.Kept(ctx, "", "other") {
		t.Errorf("another tool server has %q", k.Name)
	}
}

// TestPageOfShortValuesIsBounded: names take memory too, so very many values without a byte are more than one page.
func TestPageOfShortValuesIsBounded(t *testing.T) {
	defer func(most int) { keptPage = most }(keptPage)
	keptPage = 1000
	b := start(t, "")
	want := map[string]bool{}
	for i := range 12 {
		name := fmt.Sprintf("%0200d", i)
		if _, _, err := b.client.Keep(t.Context(), runtime.KeepRequest{Server: "s", Name: name, Value: []byte{}}); err != nil {
			t.Fatal(err)
		}
		want[name] = true
	}
	var page wire.KeptValues
	if _, _, body := b.raw("GET", "/v1/kept?tool_server=s", ""); json.Unmarshal(body, &page) != nil || page.Next == "" || len(page.Values) > 5 {
		t.Errorf("a page has %d values: %.100s", len(page.Values), body)
	}
	for k, err := range b.client.Kept(t.Context(), "", "s") {
		if err != nil || !want[k.Name] {
			t.Fatalf("%q %v", k.Name, err)
		}
		delete(want, k.Name)
	}
	if len(want) > 0 {
		t.Errorf("%d values are not listed", len(want))
	}
}
