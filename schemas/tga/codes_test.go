package tga

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// declaredCodes returns the values of the Code constants in errors.go, in order.
func declaredCodes(t *testing.T) []Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "Code" {
			for _, v := range spec.Values {
				s, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				declared = append(declared, Code(s))
			}
		}
		return true
	})
	return declared
}

func TestEveryCodeIsExplained(t *testing.T) {
	var explained []Code
	titles := map[string]Code{}
	for _, c := range Codes() {
		if other, twice := titles[c.Title]; twice || c.Title == "" || len(c.Title) > 60 || strings.HasSuffix(c.Title, ".") {
			t.Errorf("%s: title %q (also of %q)", c.Code, c.Title, other)
		}
		titles[c.Title] = c.Code
		explained = append(explained, c.Code)
		if c.HTTPStatus < 400 || c.HTTPStatus > 599 || len(c.Meaning) < 20 || len(c.Remedy) < 10 ||
			!strings.HasSuffix(c.Meaning, ".") || !strings.HasSuffix(c.Remedy, ".") {
			t.Errorf("%s: %+v", c.Code, c)
		}
		if info, ok := c.Code.Info(); !ok || info != c {
			t.Errorf("%s: Info returns %+v", c.Code, info)
		}
	}
	if declared := declaredCodes(t); !slices.Equal(explained, declared) {
		t.Errorf("explained %v\n declared %v", explained, declared)
	}
	if _, ok := Code("NO_SUCH").Info(); ok {
		t.Error("a code that is not declared is explained")
	}
}

// The locked codes of Talos 9.3 and the statuses that clients rely on.
func TestStatusesOfTheCodes(t *testing.T) {
	for code, want := range map[Code]int{
		"STATE_INVALID_TRANSITION": 409, "STATE_SEQUENCE_GAP": 409, "STATE_CHECKSUM_MISMATCH": 409, "STATE_RECOVERY_FAILED": 500,
		"STATE_LOCK_ACQUIRE_FAILED": 423, "STATE_CONCURRENT_EXECUTION": 409,
		"IDEMPOTENCY_KEY_REQUIRED": 400, "IDEMPOTENCY_KEY_IN_FLIGHT": 409, "IDEMPOTENCY_KEY_CONFLICT": 422,
		"VALIDATION_ERROR": 422, "SCHEMA_VIOLATION": 422, "CIRCUIT_OPEN": 503, "RATE_LIMITED": 429, "TOOL_TIMEOUT": 504,
	} {
		if info, ok := code.Info(); !ok || info.HTTPStatus != want {
			t.Errorf("%s: status %d, want %d", code, info.HTTPStatus, want)
		}
	}
}

// TestCodeIsSaidOnce: an error whose cause has the same code states the code once; with a different code it
// states both.
func TestCodeIsSaidOnce(t *testing.T) {
	lost := Errorf(StoreUnavailable, "log: sync group 19: %w", io.ErrUnexpectedEOF)
	stopped := Errorf(StoreUnavailable, "the store stopped: %w", lost)
	for _, c := range []struct {
		err  error
		says string
	}{
		{lost, "STORE_UNAVAILABLE: log: sync group 19: unexpected EOF"},
		{stopped, "STORE_UNAVAILABLE: the store stopped: log: sync group 19: unexpected EOF"},
		{Errorf(StoreUnavailable, "serve: %w", stopped), "STORE_UNAVAILABLE: serve: the store stopped: log: sync group 19: unexpected EOF"},
		{Errorf(StoreUnavailable, "serve: %w", fmt.Errorf("once: %w", lost)), "STORE_UNAVAILABLE: serve: once: log: sync group 19: unexpected EOF"},
		{Errorf(StoreUnavailable, "serve: %w", Errorf(NotFound, "no file").At("/a")), "STORE_UNAVAILABLE: serve: NOT_FOUND: no file (at /a)"},
		{Errorf(NotFound, "serve: %w", Errorf(NotFound, "no file").At("/a")), "NOT_FOUND: serve: no file (at /a)"},
		{Errorf(ValidationError, "%q", "VALIDATION_ERROR: "), `VALIDATION_ERROR: "VALIDATION_ERROR: "`},
	} {
		if got := c.err.Error(); got != c.says {
			t.Errorf("%s\nwant %s", got, c.says)
		}
	}
	if !errors.Is(stopped, io.ErrUnexpectedEOF) {
		t.Error("the cause is lost")
	}
}
