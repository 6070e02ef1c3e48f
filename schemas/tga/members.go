package tga

// Members calls f with each member of a JSON object in the order of the text: its name,
// with escapes undone, and the bytes of its value. Both are valid until f returns; the
// value's bytes lie in raw. The first error of f ends it and is returned.
//
// raw must be an object that passes [Gate] with limits as wide as can be; what does not is
// VALIDATION_ERROR or LIMIT_EXCEEDED.
func Members(raw []byte, f func(name, value []byte) error) error {
	return children(raw, kindObject, "want an object", func(d *document, n int32) error {
		return f(d.name(n), d.valueBytes(n))
	})
}

// Elements calls f with each element of a JSON array, as [Members] does.
func Elements(raw []byte, f func(value []byte) error) error {
	return children(raw, kindArray, "want an array", func(d *document, n int32) error {
		return f(d.valueBytes(n))
	})
}

func children(raw []byte, want kind, refusal string, f func(d *document, n int32) error) error {
	d, err := parse(raw, noLimits)
	if err != nil {
		return err
	}
	defer d.free()
	if d.nodes[0].kind != want {
		return Errorf(ValidationError, "%s", refusal)
	}
	var failed error
	err = d.children(0, func(n int32) *Error {
		if failed = f(d, n); failed != nil {
			return Errorf(ValidationError, "the caller ends it")
		}
		return nil
	})
	if failed == nil && err != nil {
		failed = err
	}
	return failed
}

// valueBytes is the text of a value, a string's with its quotes.
func (d *document) valueBytes(n int32) []byte {
	v := &d.nodes[n]
	if v.kind == kindString {
		return d.text[v.start-1 : v.end+1]
	}
	return d.text[v.start:v.end]
}

// PlainString returns what a JSON string says where it is spelled without escapes, and
// false for every other value: v must be a value that passed [Gate].
func PlainString(v []byte) ([]byte, bool) {
	if len(v) < 2 || v[0] != '"' {
		return nil, false
	}
	for _, c := range v[1 : len(v)-1] {
		if c == '\\' {
			return nil, false
		}
	}
	return v[1 : len(v)-1], true
}
