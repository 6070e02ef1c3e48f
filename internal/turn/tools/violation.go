package tools

import (
	"cmp"
	"errors"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
)

// Longest texts, in characters.
const (
	maxReason   = 500 // of a warning or a violation
	maxBranches = 4   // how many branches of an anyOf are reported
	maxNumber   = 60
)

// fault is one place of the arguments that violates the schema.
type fault struct{ pointer, want string }

// violation makes one error of everything that the validator found: it has the first place, and
// how many more there are. The validator visits maps in random order, so the faults are sorted.
func violation(tool string, args any, err error) error {
	var found *jsonschema.ValidationError
	if !errors.As(err, &found) {
		return tga.Errorf(tga.SchemaViolation, "arguments of %s: %w", tool, err)
	}
	faults := faultsOf(args, found)
	if len(faults) == 0 {
		return tga.Errorf(tga.SchemaViolation, "arguments of %s: not as the schema says", tool)
	}
	text := faults[0].want
	if more := len(faults) - 1; more > 0 {
		text += ", and " + strconv.Itoa(more) + " more"
	}
	return tga.Errorf(tga.SchemaViolation, "arguments of %s: %s", tool, clip.Runes(text, maxReason)).At(clip.Runes(faults[0].pointer, maxReason))
}

// faultsOf returns the leaves of a tree of faults, sorted. If one of several schemas or values
// had to fit, it returns one fault for the choice, not one for each branch.
func faultsOf(args any, e *jsonschema.ValidationError) []fault {
	own := fault{pointer: pointer(e.InstanceLocation)}
	switch k := e.ErrorKind.(type) {
	case *kind.PropertyNames:
		// The library reports this place in a slice that it goes on writing to: only the depth is
		// right.
		own.pointer = pointer(holder(args, len(e.InstanceLocation), k.Property))
		own.want = said(k)
		return []fault{own}
	case *kind.AnyOf, *kind.OneOf, *kind.Contains, *kind.MinContains:
		var branches []string
		for _, c := range e.Causes {
			if leaves := faultsOf(args, c); len(leaves) > 0 && len(branches) < maxBranches {
				branches = append(branches, told(leaves[0], own.pointer))
			}
		}
		own.want = said(e.ErrorKind)
		if len(branches) > 0 {
			own.want += ": " + strings.Join(branches, "; or ")
		}
		return []fault{own}
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		own.want = said(k)
		return []fault{own}
	}
	if len(e.Causes) == 0 {
		own.want = said(e.ErrorKind)
		return []fault{own}
	}
	var all []fault
	for _, c := range e.Causes {
		all = append(all, faultsOf(args, c)...)
	}
	slices.SortFunc(all, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.pointer, b.pointer), cmp.Compare(a.want, b.want))
	})
	return slices.Compact(all)
}

// holder finds the object at a depth that has a member of that name. It returns nil, the root, if
// not exactly one object has.
func holder(v any, depth int, name string) []string {
	var found [][]string
	var walk func(v any, at []string)
	walk = func(v any, at []string) {
		switch v := v.(type) {
		case map[string]any:
			if _, ok := v[name]; ok && len(at) == depth {
				found = append(found, slices.Clone(at))
			}
			for token, member := range v {
				walk(member, append(at, token))
			}
		case []any:
			for i, member := range v {
				walk(member, append(at, strconv.Itoa(i)))
			}
		}
	}
	walk(v, nil)
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// told returns the text of a branch's fault. It names the place if that is not the place of the
// choice itself.
func told(f fault, at string) string {
	if f.pointer == at {
		return f.want
	}
	return f.want + " at " + f.pointer
}

// english prints numbers without commas.
var english = message.NewPrinter(language.MustParse("en-US-u-va-posix"))

// said returns the validator's text. It writes bounds itself, because the library rounds them to
// doubles, and "got 9007199254740992, want 9007199254740992" helps nobody.
func said(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Maximum:
		return "got " + decimal(k.Got) + ", want at most " + decimal(k.Want)
	case *kind.Minimum:
		return "got " + decimal(k.Got) + ", want at least " + decimal(k.Want)
	case *kind.ExclusiveMaximum:
		return "got " + decimal(k.Got) + ", want less than " + decimal(k.Want)
	case *kind.ExclusiveMinimum:
		return "got " + decimal(k.Got) + ", want more than " + decimal(k.Want)
	case *kind.MultipleOf:
		return "got " + decimal(k.Got) + ", want a multiple of " + decimal(k.Want)
	}
	return k.LocalizedString(english)
}

// decimal writes a number that was given as a decimal, exactly.
func decimal(r *big.Rat) string {
	digits, _ := r.FloatPrec()
	return clip.Runes(r.FloatString(digits), maxNumber)
}

func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString("/" + tga.EscapeToken(t))
	}
	return b.String()
}
