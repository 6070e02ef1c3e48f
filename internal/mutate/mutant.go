package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// mutant is one changed operator.
type mutant struct {
	path         string
	kind         string // gremlins' name of the change
	line, column int
	name         string // stays the same when lines move: see [name]
}

// changes says how each kind changes an operator, as gremlins v0.5.0 does by default.
var changes = map[string]map[string]string{
	"ARITHMETIC_BASE":       {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
	"CONDITIONALS_BOUNDARY": {">=": ">", ">": ">=", "<=": "<", "<": "<="},
	"CONDITIONALS_NEGATION": {"==": "!=", "!=": "==", ">=": "<", ">": "<=", "<=": ">", "<": ">="},
	"INCREMENT_DECREMENT":   {"++": "--", "--": "++"},
	"INVERT_NEGATIVES":      {"-": "+"},
}

// apply returns the source with the operator changed.
func (m mutant) apply(src []byte) ([]byte, error) {
	at := 0
	for range m.line - 1 {
		n := bytes.IndexByte(src[at:], '\n')
		if n < 0 {
			return nil, fmt.Errorf("there is no such line")
		}
		at += n + 1
	}
	at += m.column - 1
	for n := 2; n > 0; n-- {
		if at+n > len(src) {
			continue
		}
		if to, ok := changes[m.kind][string(src[at:at+n])]; ok {
			return append(append(bytes.Clone(src[:at]), to...), src[at+n:]...), nil
		}
	}
	return nil, fmt.Errorf("%s knows no operator there", m.kind)
}

// inOrder compares mutants by their places. Gremlins finds them in another order each time, so
// without a fixed order a sample could not be run again.
func inOrder(a, b mutant) int {
	return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column), strings.Compare(a.kind, b.kind))
}

// name names the mutants of a file and sorts them. A name is made of path, function, kind and the
// text of the line, and a number if several mutants are equal in all of these. It has no line
// number, because line numbers change with every edit above them.
func name(src []byte, all []mutant) ([]mutant, error) {
	slices.SortFunc(all, inOrder)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, 0)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(src), "\n")
	count := map[string]int{}
	for i, m := range all {
		in := "-"
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && fset.Position(f.Pos()).Line <= m.line && m.line <= fset.Position(f.End()).Line {
				in = f.Name.Name
			}
		}
		n := fmt.Sprintf("%s %s %s %s", m.path, in, m.kind, strings.TrimSpace(lines[m.line-1]))
		if count[n]++; count[n] > 1 {
			n += fmt.Sprintf(" #%d", count[n])
		}
		all[i].name = n
	}
	return all, nil
}

// parseList reads the list: the name of a mutant on a line of its own, and on the next line,
// indented, the reason why no test can tell it from the code. Lines that begin with # are
// comments.
func parseList(text string) (map[string]string, error) {
	known := map[string]string{}
	last := ""
	for i, line := range strings.Split(text, "\n") {
		indented := strings.HasPrefix(line, "\t")
		switch line = strings.TrimSpace(line); {
		case line == "" || strings.HasPrefix(line, "#"):
		case indented && last != "":
			known[last], last = line, ""
		case indented:
			return nil, fmt.Errorf("line %d: a reason without a mutant", i+1)
		case last != "":
			return nil, fmt.Errorf("line %d: %q has no reason", i+1, last)
		default:
			if _, twice := known[line]; twice {
				return nil, fmt.Errorf("line %d: %q is there twice", i+1, line)
			}
			last = line
		}
	}
	if last != "" {
		return nil, fmt.Errorf("%q has no reason", last)
	}
	return known, nil
}
