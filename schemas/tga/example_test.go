package tga_test

import (
	"errors"
	"fmt"

	"github.com/tgad/tgad/schemas/tga"
)

// Two texts of one JSON value have one canonical form, and so one digest. A text that can be read in two
// ways is refused.
func ExampleCanonicalize() {
	a, err := tga.Canonicalize([]byte(`{ "b": 1.0, "a": "é" }`), tga.Limits{})
	b, _ := tga.Canonicalize([]byte(`{"a":"\u00e9","b":1}`), tga.Limits{})
	fmt.Println(string(a), err)
	fmt.Println(tga.Sum(a) == tga.Sum(b))
	_, err = tga.Canonicalize([]byte(`{"a":1,"a":2}`), tga.Limits{})
	fmt.Println(tga.CodeOf(err))
	// Output:
	// {"a":"é","b":1} <nil>
	// true
	// VALIDATION_ERROR
}

// The machine of a trace is a table: from a state, an artifact leads to one state or to none.
func ExampleNext() {
	fmt.Println(tga.Next(tga.Pending, tga.DecisionType, tga.Approve))
	fmt.Println(tga.Next(tga.Pending, tga.DecisionType, tga.Deny))
	fmt.Println(tga.Next(tga.Completed, tga.CallType, ""))
	// Output:
	// AUTHORIZED true
	// DENIED true
	//  false
}

// Errors have codes. errors.Is matches a code, however often the error was wrapped, and the code says
// whether trying again can help.
func ExampleError() {
	err := fmt.Errorf("charge order-1: %w", tga.Errorf(tga.EffectInDoubt, "attempt 1 has no effect"))
	fmt.Println(errors.Is(err, tga.EffectInDoubt), tga.CodeOf(err))
	for _, c := range tga.Codes() {
		if c.Code == tga.EffectInDoubt {
			fmt.Println(c.HTTPStatus, c.Retryable)
		}
	}
	// Output:
	// true EFFECT_IN_DOUBT
	// 409 false
}
