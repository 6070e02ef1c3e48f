package tools

import (
	"bytes"
	"container/list"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// anyObject is the schema of a tool that says nothing about its arguments.
const anyObject = `{"type":"object"}`

// prepare returns the canonical form of an input schema and its digest. Models require that the
// root says that it is an object, as arguments are, so prepare adds that if the schema does not
// say it. Everything uses the canonical form from here on, so a schema has the same bytes before
// and after it is stored.
func prepare(raw json.RawMessage, limit int) (json.RawMessage, tga.Digest, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage(anyObject)
	}
	canonical, err := tga.Canonicalize(raw, tga.Limits{MaxBytes: limit})
	if err != nil {
		return nil, tga.Digest{}, fmt.Errorf("input schema: %w", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil || members == nil {
		return nil, tga.Digest{}, tga.Errorf(tga.SchemaViolation, "input schema is no object")
	}
	kinds, ok := members["type"]
	if !ok {
		members["type"] = json.RawMessage(`"object"`)
		added, err := json.Marshal(members)
		if err == nil {
			canonical, err = tga.Canonicalize(added, tga.Limits{MaxBytes: limit})
		}
		if err != nil {
			return nil, tga.Digest{}, fmt.Errorf("input schema: %w", err)
		}
	} else if !takesObject(kinds) {
		return nil, tga.Digest{}, tga.Errorf(tga.SchemaViolation, "input schema wants %.80s, and arguments are an object", kinds).At("/type")
	}
	return canonical, tga.Sum(canonical), nil
}

func takesObject(kinds json.RawMessage) bool {
	var one string
	if json.Unmarshal(kinds, &one) == nil {
		return one == "object"
	}
	var some []string
	if json.Unmarshal(kinds, &some) != nil {
		return true // not a schema at all; compile reports that
	}
	return slices.Contains(some, "object")
}

// compiled caches the most recently used compiled schemas by digest.
type compiled struct {
	most int

	mu    sync.Mutex
	order *list.List // of *compilation, the last used in front
	by    map[tga.Digest]*list.Element
}

type compilation struct {
	digest tga.Digest
	schema *jsonschema.Schema
	err    error // why the schema cannot be used
}

func newCompiled(most int) *compiled {
	return &compiled{most: most, order: list.New(), by: map[tga.Digest]*list.Element{}}
}

// get returns the compiled form of a schema. The key is the digest of the given bytes, not a
// digest that somebody claims for them.
func (c *compiled) get(schema json.RawMessage) (*jsonschema.Schema, error) {
	digest := tga.Sum(schema)
	c.mu.Lock()
	if e, ok := c.by[digest]; ok {
		c.order.MoveToFront(e)
		c.mu.Unlock()
		done := e.Value.(*compilation)
		return done.schema, done.err
	}
	c.mu.Unlock()

	done := &compilation{digest: digest}
	done.schema, done.err = compile(schema)

	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.by[digest]; !ok {
		c.by[digest] = c.order.PushFront(done)
		for c.order.Len() > c.most {
			delete(c.by, c.order.Remove(c.order.Back()).(*compilation).digest)
		}
	}
	return done.schema, done.err
}

// schemaURL stands for the document itself. The library carries the drafts' metaschemas; every
// other $ref or $schema goes to the loader.
const schemaURL = "schema:///input"

// shut refuses to load anything: a schema comes from a tool server, and must not make this
// process read a file or contact a host.
type shut struct{}

func (shut) Load(url string) (any, error) {
	return nil, errors.New("schemas outside of the document are not loaded")
}

// compile compiles a schema of draft 4, 6, 7, 2019-09 or 2020-12, as its $schema says; without
// $schema it is 2020-12. A pattern that Go's regular expressions do not support (look-ahead)
// makes the schema unusable: without the pattern, arguments would pass that the tool refuses.
// LIMIT_EXCEEDED for a schema that cannot check any arguments within the limit of steps.
func compile(schema json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, tga.Errorf(tga.SchemaViolation, "input schema: %w", err)
	}
	if err := measure(doc, "", 0); err != nil {
		return nil, fmt.Errorf("input schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(shut{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, tga.Errorf(tga.SchemaViolation, "input schema: %w", err)
	}
	s, err := c.Compile(schemaURL)
	if err != nil {
		return nil, tga.Errorf(tga.SchemaViolation, "input schema can't be used: %s", clip.Runes(err.Error(), maxReason))
	}
	// More arguments take more steps. So a schema that refers to itself in place, or that has too
	// many alternatives already for an empty object, can check no arguments at all.
	if count(s, map[string]any{}) > maxSteps {
		return nil, tga.Errorf(tga.LimitExceeded, "input schema can't be used: it may take more than %d steps whatever the arguments are", maxSteps)
	}
	return s, nil
}

// Validate implements [turn.Resolver]. It returns SCHEMA_VIOLATION with a pointer to the value
// that violates the tool's schema, and what the schema wants there; LIMIT_EXCEEDED for arguments
// that are too long or too deep, or that take the schema too many steps to check;
// VALIDATION_ERROR for arguments that are not a JSON object. Numbers are compared exactly, as the
// decimals that are written.
//
// Of two members with the same name the last is checked. The governed call refuses such
// arguments.
func (r *Resolver) Validate(tool *turn.Tool, args []byte) error {
	if len(args) > r.opts.MaxArgs {
		return tga.Errorf(tga.LimitExceeded, "arguments of %s: %d bytes, at most %d", tool.Name, len(args), r.opts.MaxArgs)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return tga.Errorf(tga.ValidationError, "arguments of %s: %w", tool.Name, err)
	}
	if _, ok := v.(map[string]any); !ok {
		return tga.Errorf(tga.ValidationError, "arguments of %s: want a JSON object", tool.Name)
	}
	if err := measure(v, "", 0); err != nil {
		return fmt.Errorf("arguments of %s: %w", tool.Name, err)
	}
	schema := tool.InputSchema
	if len(schema) == 0 {
		return nil
	}
	s, err := r.schemas.get(schema)
	if err != nil {
		return fmt.Errorf("tool %s: %w", tool.Name, err)
	}
	if n := count(s, v); n > maxSteps {
		return tga.Errorf(tga.LimitExceeded, "arguments of %s: its schema may take more than %d steps to check them", tool.Name, maxSteps)
	}
	if err := s.Validate(v); err != nil {
		return violation(tool.Name, v, err)
	}
	return nil
}

// Bounds of a document that is given to the validator. The validator makes exact fractions of
// numbers, and 1e999999999 has a billion digits.
const (
	maxDepth    = tga.DefaultMaxDepth
	maxDigits   = 1000
	maxExponent = 400 // a double ends at 308
)

// measure returns an error for a place of v that is nested too deep or has a number that is too
// long.
func measure(v any, at string, depth int) error {
	switch v := v.(type) {
	case map[string]any:
		if depth++; depth > maxDepth {
			return tga.Errorf(tga.LimitExceeded, "nested more than %d deep", maxDepth).At(at)
		}
		for name, member := range v {
			if err := measure(member, at+"/"+tga.EscapeToken(name), depth); err != nil {
				return err
			}
		}
	case []any:
		if depth++; depth > maxDepth {
			return tga.Errorf(tga.LimitExceeded, "nested more than %d deep", maxDepth).At(at)
		}
		for i, member := range v {
			if err := measure(member, at+"/"+strconv.Itoa(i), depth); err != nil {
				return err
			}
		}
	case json.Number:
		digits, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e")
		if len(digits) > maxDigits {
			return tga.Errorf(tga.LimitExceeded, "number of %d digits, at most %d", len(digits), maxDigits).At(at)
		}
		if exponent == "" {
			return nil
		}
		if e, err := strconv.Atoi(exponent); err != nil || e > maxExponent || e < -maxExponent {
			return tga.Errorf(tga.LimitExceeded, "exponent %.20s, at most %d either way", exponent, maxExponent).At(at)
		}
	}
	return nil
}
