package grpccall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/tools"
	"github.com/tgad/tgad/schemas/tga"
)

const itemProperties = `{
	"sku":{"type":"string"},
	"unitCents":{"type":["string","integer"],"pattern":"^-?[0-9]{1,19}$","description":"What one costs."},
	"big":{"type":["string","integer"],"pattern":"^[0-9]{1,20}$","minimum":0},
	"tags":{"type":"array","items":{"type":"string"}},
	"stock":{"type":"object","additionalProperties":{"$ref":"#/$defs/shop.Item"}},
	"text":{"type":"string"},
	"child":{"$ref":"#/$defs/shop.Item"},
	"color":{"type":"string","enum":["RED","BLUE"]},
	"at":{"type":"string","format":"date-time"},
	"blob":{"type":"string","contentEncoding":"base64"},
	"price":{"type":"number"},
	"extra":{"type":"object"},
	"count":{"type":"integer","minimum":-2147483648,"maximum":2147483647}}`

const itemSchema = `"type":"object","additionalProperties":false,"allOf":[{"not":{"required":["text","child"]}}],"properties":` + itemProperties

func TestMethodsAreTools(t *testing.T) {
	w := newWorld(t, reflectsV1)
	for name, s := range map[string]*Server{
		"reflection":     newServer(t, w.addr, Options{}),
		"descriptor set": newServer(t, w.addr, Options{DescriptorSet: writeSet(t, parseFile(t, shop))}),
	} {
		list, err := s.ListTools(context.Background())
		if err != nil || len(list) != 2 {
			t.Fatalf("%s: %v, %v", name, list, err)
		}
		buy, look := list[0], list[1]
		if buy.Name != "shop.Shop/Buy" || buy.ReadOnly || buy.Idempotent || look.Name != "shop.Shop/Look" || !look.ReadOnly || !look.Idempotent {
			t.Errorf("%s: %+v, %+v", name, buy, look)
		}
		want := `{"name":"shop.Shop/Buy","description":"Buys one item.\nFor money.","annotations":{"readOnlyHint":false,"idempotentHint":false},
			"inputSchema":{` + itemSchema + `,"$defs":{"shop.Item":{` + itemSchema + `}}}}`
		if diff := cmp.Diff(unmarshal(t, want), unmarshal(t, string(buy.Definition))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func unmarshal(t *testing.T, s string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

// TestSchemaAgreesWithTheMethod: the method accepts what its schema accepts, and refuses what the
// schema refuses.
func TestSchemaAgreesWithTheMethod(t *testing.T) {
	w := newWorld(t, reflectsV1)
	s := newServer(t, w.addr, Options{})
	r, err := tools.New(tools.Options{Servers: map[string]tools.Lister{"shop": s}})
	if err != nil {
		t.Fatal(err)
	}
	found, warnings, err := r.Resolve(context.Background(), &turn.Agent{Name: "a", Tools: []turn.ToolSpec{
		{Name: "buy", Transport: turn.OverGRPC, Server: "shop", Remote: "shop.Shop/Buy"},
		{Name: "watch", Transport: turn.OverGRPC, Server: "shop", Remote: "shop.Shop/Watch"},
		{Transport: turn.OverGRPC, Server: "shop", Discover: true},
	}})
	if err != nil || len(found) != 3 || len(warnings) != 1 || warnings[0].Tool != "watch" || warnings[0].Code != tga.NotFound {
		t.Fatal(found, warnings, err)
	}
	if found[1].Name != "shop_Shop_Buy" || found[1].Remote != "shop.Shop/Buy" || found[2].Name != "shop_Shop_Look" {
		t.Errorf("%+v", found)
	}
	known, m, err := s.method(context.Background(), "shop.Shop/Buy")
	if err != nil {
		t.Fatal(err)
	}
	for args, good := range map[string]bool{
		`{}`: true,
		`{"sku":"a","unitCents":"-9223372036854775808","big":"18446744073709551615","tags":["a"],"stock":{"x":{"text":"t"}},"color":"BLUE","at":"2026-01-01T00:00:00Z","blob":"AA==","price":1.5,"extra":{"a":[1]},"count":-1}`: true,
		`{"unitCents":5,"big":5}`:       true,
		`{"child":{"child":{}}}`:        true,
		`{"sku":1}`:                     false,
		`{"unitCents":"x"}`:             false,
		`{"unitCents":1.5}`:             false,
		`{"big":"-1"}`:                  false,
		`{"big":-1}`:                    false,
		`{"tags":"a"}`:                  false,
		`{"color":"GREEN"}`:             false,
		`{"count":2147483648}`:          false,
		`{"child":{"child":{"sku":1}}}`: false,
		`{"text":"a","child":{}}`:       false,
		`{"unknown":1}`:                 false,
		`{"extra":[]}`:                  false,
	} {
		valid := r.Validate(&found[0], []byte(args)) == nil
		_, err := known.encode(m, []byte(args))
		if valid != good || (err == nil) != good {
			t.Errorf("%s: the schema says %v, the method %v, want %v", args, valid, err == nil, good)
		}
	}
}

// TestListAsksAgain: a list shows the current methods of the server, and a method that was added
// later can be called.
func TestListAsksAgain(t *testing.T) {
	w := newWorld(t, reflectsV1)
	current := w.files
	w.files = linked(t, parseFile(t, strings.Replace(shop, `method { name: "Buy" input_type: ".shop.Item" output_type: ".shop.Item" }`, ``, 1)))
	s := newServer(t, w.addr, Options{})
	if got := toolNames(t, s); !slices.Equal(got, []string{"shop.Shop/Look"}) {
		t.Fatal(got)
	}
	if got := what(s.Dispatch(context.Background(), aCall(`{}`))); got != "not sent" {
		t.Errorf("a method that is not there yet: %s", got)
	}
	w.files = current
	if got := what(s.Dispatch(context.Background(), aCall(`{}`))); got != "SUCCESS" {
		t.Errorf("a method that came later: %s", got)
	}
	w.files = linked(t, parseFile(t, strings.Replace(shop, `"Look"`, `"Stare"`, 1)))
	if got := toolNames(t, s); !slices.Equal(got, []string{"shop.Shop/Buy", "shop.Shop/Stare"}) {
		t.Error(got)
	}
}

func TestServicesAreChosen(t *testing.T) {
	w := newWorld(t, reflectsV1)
	for want, services := range map[string][]string{"shop.Shop/Buy shop.Shop/Look": {"shop.Shop"}, "": {"shop.Other"}} {
		if got := strings.Join(toolNames(t, newServer(t, w.addr, Options{Services: services})), " "); got != want {
			t.Errorf("%v: %q, want %q", services, got, want)
		}
	}
}

// TestMissingDescriptors: a method whose messages are not all known is not a tool; the others
// are.
func TestMissingDescriptors(t *testing.T) {
	f := parseFile(t, `
name: "hole.proto" package: "hole" syntax: "proto3" dependency: "nowhere.proto"
message_type { name: "Whole" field { name: "a" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
message_type { name: "Holed" field { name: "in" number: 1 type: TYPE_MESSAGE type_name: ".hole.Deep" label: LABEL_OPTIONAL } }
message_type { name: "Deep" field { name: "gone" number: 1 type: TYPE_MESSAGE type_name: ".nowhere.Gone" label: LABEL_OPTIONAL } }
service { name: "S"
  method { name: "Good" input_type: ".hole.Whole" output_type: ".hole.Whole" }
  method { name: "Bad" input_type: ".hole.Whole" output_type: ".hole.Holed" } }`)
	raw, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{f}})
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, "127.0.0.1:1", Options{DescriptorSet: write(t, raw)})
	if got := toolNames(t, s); !slices.Equal(got, []string{"hole.S/Good"}) {
		t.Error(got)
	}
	call := aCall(`{}`)
	call.Tool = "hole.S/Bad"
	if reply, err := s.Dispatch(context.Background(), call); what(reply, err) != "not sent" || !errors.Is(err, tga.ValidationError) {
		t.Errorf("%s, %v", what(reply, err), err)
	}
}

// TestMessagesLimit: a request that refers to as many messages as permitted, and to one more.
func TestMessagesLimit(t *testing.T) {
	var text strings.Builder
	text.WriteString(`name: "chain.proto" package: "chain" syntax: "proto3"
		service { name: "S" method { name: "Most" input_type: ".chain.M1" output_type: ".chain.End" }
			method { name: "More" input_type: ".chain.M0" output_type: ".chain.End" } }
		message_type { name: "End" }`)
	for i := range maxMessages + 1 {
		next := fmt.Sprintf("M%d", i+1)
		if i == maxMessages {
			next = "End"
		}
		fmt.Fprintf(&text, `message_type { name: "M%d" field { name: "m" number: 1 type: TYPE_MESSAGE type_name: ".chain.%s" label: LABEL_OPTIONAL } }`, i, next)
	}
	s := newServer(t, "127.0.0.1:1", Options{DescriptorSet: writeSet(t, parseFile(t, text.String()))})
	if got := toolNames(t, s); !slices.Equal(got, []string{"chain.S/Most"}) {
		t.Error(got)
	}
}

// TestServiceWithoutDescriptors: a server lists a service that it does not describe. The log says
// so, and the other services are tools.
func TestServiceWithoutDescriptors(t *testing.T) {
	var log strings.Builder
	w := newWorld(t, reflectsV1, "shop.Ghost")
	s := newServer(t, w.addr, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if got := toolNames(t, s); !slices.Equal(got, []string{"shop.Shop/Buy", "shop.Shop/Look"}) || !strings.Contains(log.String(), "shop.Ghost") {
		t.Errorf("%v, %s", got, log.String())
	}
}

func TestListFails(t *testing.T) {
	mute := newWorld(t, noReflection)
	if _, err := newServer(t, mute.addr, Options{}).ListTools(context.Background()); err == nil || !strings.Contains(err.Error(), "descriptor set") {
		t.Errorf("no reflection: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := newServer(t, mute.addr, Options{}).ListTools(ctx); err == nil {
		t.Error("a list after the context's end")
	}
	if _, err := newServer(t, "127.0.0.1:1", Options{}).ListTools(context.Background()); err == nil {
		t.Error("a list from nobody")
	}
}
