package sqlcheck

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var soon = verify.Patience{Tries: 2, Delay: time.Millisecond, MaxDelay: time.Millisecond}

func ptr(s string) *string { return &s }

// table is a result with the columns a and b; "NULL" is NULL.
func table(rows ...string) Result {
	r := Result{Columns: []string{"a", "b"}}
	for _, row := range rows {
		var values []*string
		for v := range strings.SplitSeq(row, ",") {
			if v == "NULL" {
				values = append(values, nil)
			} else {
				values = append(values, &v)
			}
		}
		r.Rows = append(r.Rows, values)
	}
	return r
}

func TestFindings(t *testing.T) {
	const e, g, c, x = runtime.Exists, runtime.Gone, runtime.Changed, runtime.CannotTell
	is := func(name, want string) []Column { return []Column{{Name: name, Equals: &want}} }
	field := []Column{{Name: "b", Field: "version"}}
	plain := tga.StateChange{ResourceID: "1"}
	versioned := tga.StateChange{ResourceID: "1", Version: "7"}
	for _, test := range []struct {
		name   string
		config Config
		change tga.StateChange
		result Result
		want   runtime.Finding
	}{
		{"no row", Config{}, plain, table(), g},
		{"a row", Config{}, plain, table("1,x"), e},
		{"two rows", Config{}, plain, table("1,x", "2,y"), e},
		{"two rows for one", Config{Rows: 1}, plain, table("1,x", "2,y"), c},
		{"two rows for two", Config{Rows: 2}, plain, table("1,x", "2,y"), e},
		{"no row for two", Config{Rows: 2}, plain, table(), g},
		{"as many as can be", Config{}, plain, table(strings.Split(strings.Repeat("1,x ", MaxRows-1)+"1,x", " ")...), e},
		{"one more", Config{}, plain, table(strings.Split(strings.Repeat("1,x ", MaxRows)+"1,x", " ")...), x},
		{"column", Config{Columns: is("b", "x")}, plain, table("1,x"), e},
		{"column of a row", Config{Columns: is("b", "x")}, plain, table("1,x", "2,y"), c},
		{"column that is NULL", Config{Columns: is("b", "NULL")}, plain, table("1,NULL"), c},
		{"NULL wanted", Config{Columns: []Column{{Name: "b", Null: true}}}, plain, table("1,NULL"), e},
		{"NULL wanted, empty there", Config{Columns: []Column{{Name: "b", Null: true}}}, plain, table("1,"), c},
		{"no such column", Config{Columns: is("c", "x")}, plain, table("1,x"), x},
		{"version", Config{Columns: field}, versioned, table("1,7"), e},
		{"another version", Config{Columns: field}, versioned, table("1,8"), c},
		{"no version to compare", Config{Columns: field}, plain, table("1,8"), e},
		{"version that nothing compares", Config{}, versioned, table("1,7"), x},
		{"version that is ignored", Config{Ignore: []string{"version"}}, versioned, table("1,7"), e},
		{"version as a parameter", Config{Params: []string{"resource_id", "version"}}, versioned, table("1,7"), e},
	} {
		test.config.Query, test.config.Patience = "SELECT a, b FROM t", soon
		v, err := New(test.config, "fake", nil, func(context.Context, string, []*string) (Result, error) { return test.result, nil })
		if err != nil {
			t.Fatal(err)
		}
		f, evidence, err := v.Verify(t.Context(), test.change)
		if f != test.want || err != nil || !json.Valid(evidence.Detail) || evidence.Source != "fake: SELECT a, b FROM t" {
			t.Errorf("%s: got %v, %v, %q: %s", test.name, f, err, evidence.Source, evidence.Detail)
		}
	}
}

func TestParameters(t *testing.T) {
	var got []string
	run := func(_ context.Context, _ string, params []*string) (Result, error) {
		got = nil
		for _, p := range params {
			if p == nil {
				got = append(got, "NULL")
			} else {
				got = append(got, *p)
			}
		}
		return table("1,x"), nil
	}
	v, err := New(Config{Query: "select 1", Params: []string{"resource_id", "external_ref?", "resource_id"}, Patience: soon}, "fake", nil, run)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Verify(t.Context(), tga.StateChange{ResourceID: "';--"}); err != nil || strings.Join(got, "|") != "';--|NULL|';--" {
		t.Errorf("got %q, %v", got, err)
	}
	// NULL equals nothing: a row that exists would not be found.
	if v, err = New(Config{Query: "select 1", Params: []string{"external_ref"}, Patience: soon}, "fake", nil, run); err != nil {
		t.Fatal(err)
	}
	got = nil
	if f, _, err := v.Verify(t.Context(), tga.StateChange{ResourceID: "1"}); f != runtime.CannotTell || !errors.Is(err, tga.ValidationError) || got != nil {
		t.Errorf("got %v, %v, %q", f, err, got)
	}
}

func TestSecretsAndLongValuesInEvidence(t *testing.T) {
	run := func(context.Context, string, []*string) (Result, error) {
		return table("your passw0rd," + strings.Repeat("x", 1<<20)), nil
	}
	v, err := New(Config{Query: "select 1", Patience: soon}, "fake passw0rd", verify.NewSecrets("passw0rd"), run)
	if err != nil {
		t.Fatal(err)
	}
	_, e, err := v.Verify(t.Context(), tga.StateChange{ResourceID: "1"})
	if err != nil || strings.Contains(e.Source+string(e.Detail), "passw0rd") || len(e.Detail) > verify.MaxEvidence || !strings.Contains(string(e.Detail), "first_row") {
		t.Errorf("%v, %q, %d bytes: %.200s", err, e.Source, len(e.Detail), e.Detail)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, test := range []struct {
		c   Config
		key string
	}{
		{Config{Query: "SELECT 1"}, ""},
		{Config{Query: "\n with x as (select 1) select * from x"}, ""},
		{Config{Query: "VALUES (1)"}, ""},
		{Config{}, "query"},
		{Config{Query: "SELECT 1; DELETE FROM t"}, "query"},
		{Config{Query: "DELETE FROM t"}, "query"},
		{Config{Query: "-- x\nSELECT 1"}, "query"},
		{Config{Query: "SELECTED"}, "query"},
		{Config{Query: "SELECT 1", Params: []string{"key"}}, "params.0"},
		{Config{Query: "SELECT 1", Params: []string{"version?", "etag??"}}, "params.1"},
		{Config{Query: "SELECT 1", Rows: -1}, "rows"},
		{Config{Query: "SELECT 1", Rows: MaxRows}, ""},
		{Config{Query: "SELECT 1", Rows: MaxRows + 1}, "rows"},
		{Config{Query: "SELECT 1", Columns: []Column{{Name: "a"}}}, "column.0"},
		{Config{Query: "SELECT 1", Columns: []Column{{Equals: ptr("x")}}}, "column.0"},
		{Config{Query: "SELECT 1", Columns: []Column{{Name: "a", Equals: ptr(""), Null: true}}}, "column.0"},
		{Config{Query: "SELECT 1", Columns: []Column{{Name: "a", Field: "key"}}}, "column.0.field"},
		{Config{Query: "SELECT 1", Ignore: []string{"a"}}, "ignore"},
		{Config{Query: "SELECT 1", Patience: verify.Patience{Tries: -1}}, "tries"},
	} {
		v, err := New(test.c, "fake", nil, nil)
		if (err == nil) != (test.key == "") || (v != nil) != (err == nil) || err != nil && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), " "+test.key+": ")) {
			t.Errorf("%+v: got %v, want an error about %q", test.c, err, test.key)
		}
	}
}
