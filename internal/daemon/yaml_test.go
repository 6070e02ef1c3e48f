package daemon

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/wire"
)

// parseYAML reads the part of YAML that schemas/wire/openapi.yaml keeps to: block maps
// and sequences, flow maps and sequences on one line, plain and double-quoted scalars,
// and literal blocks. TestYAMLReaderAgreesWithAnother compares it with another reader.
func parseYAML(text string) (v any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	p := &yamlReader{}
	for n, line := range strings.Split(text, "\n") {
		p.lines = append(p.lines, yamlLine{n + 1, len(line) - len(strings.TrimLeft(line, " ")), strings.TrimSpace(line), line})
	}
	return p.block(0), nil
}

type yamlLine struct {
	number, indent int
	text, whole    string
}

type yamlReader struct{ lines []yamlLine }

func (p *yamlReader) peek() (yamlLine, bool) {
	for len(p.lines) > 0 && p.lines[0].text == "" {
		p.lines = p.lines[1:]
	}
	if len(p.lines) == 0 {
		return yamlLine{}, false
	}
	return p.lines[0], true
}

// block reads what stands at an indent or deeper.
func (p *yamlReader) block(indent int) any {
	l, ok := p.peek()
	if !ok || l.indent < indent {
		panic(fmt.Sprintf("line %d: nothing where a value should be", l.number))
	}
	if strings.HasPrefix(l.text, "- ") {
		return p.sequence(l.indent)
	}
	return p.mapping(l.indent)
}

func (p *yamlReader) sequence(indent int) any {
	list := []any{}
	for {
		l, ok := p.peek()
		if !ok || l.indent != indent || !strings.HasPrefix(l.text, "- ") {
			return list
		}
		rest := l.text[2:]
		if strings.HasPrefix(rest, "{") || !strings.Contains(rest, ": ") {
			p.lines = p.lines[1:]
			list = append(list, yamlScalar(rest, l.number))
			continue
		}
		// A map that begins behind the dash: read it as one that is indented.
		p.lines[0] = yamlLine{l.number, indent + 2, rest, l.whole}
		list = append(list, p.mapping(indent+2))
	}
}

func (p *yamlReader) mapping(indent int) any {
	m := map[string]any{}
	for {
		l, ok := p.peek()
		if !ok || l.indent < indent {
			return m
		}
		if l.indent > indent {
			panic(fmt.Sprintf("line %d: indented too far", l.number))
		}
		key, rest := yamlKey(l)
		if _, twice := m[key]; twice {
			panic(fmt.Sprintf("line %d: %q is there twice", l.number, key))
		}
		p.lines = p.lines[1:]
		switch rest {
		case "":
			m[key] = p.block(indent + 1)
		case "|":
			m[key] = p.literal(indent)
		default:
			m[key] = yamlScalar(rest, l.number)
		}
	}
}

func yamlKey(l yamlLine) (key, rest string) {
	text := l.text
	if text[0] == '"' {
		end := strings.IndexByte(text[1:], '"') + 1
		return text[1:end], strings.TrimSpace(strings.TrimPrefix(text[end+1:], ":"))
	}
	if k, ok := strings.CutSuffix(text, ":"); ok && !strings.Contains(text, ": ") {
		return k, ""
	}
	key, rest, ok := strings.Cut(text, ": ")
	if !ok {
		panic(fmt.Sprintf("line %d: no key in %q", l.number, text))
	}
	return key, strings.TrimSpace(rest)
}

func (p *yamlReader) literal(indent int) string {
	var b strings.Builder
	deep := -1
	for len(p.lines) > 0 && (p.lines[0].text == "" || p.lines[0].indent > indent) {
		l := p.lines[0]
		p.lines = p.lines[1:]
		if deep < 0 {
			deep = l.indent
		}
		if l.text != "" {
			b.WriteString(l.whole[deep:])
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// yamlScalar reads a value that stands on one line.
func yamlScalar(text string, line int) any {
	v, rest := yamlFlow(text, line, "")
	if rest != "" {
		panic(fmt.Sprintf("line %d: %q is left over", line, rest))
	}
	return v
}

// yamlFlow reads one value; a plain scalar ends before one of the bytes in stop.
func yamlFlow(text string, line int, stop string) (any, string) {
	switch {
	case text == "":
		panic(fmt.Sprintf("line %d: a value is missing", line))
	case text[0] == '{':
		m := map[string]any{}
		for text = strings.TrimLeft(text[1:], " "); text[0] != '}'; {
			key, rest, ok := strings.Cut(text, ": ")
			if !ok {
				panic(fmt.Sprintf("line %d: no key in %q", line, text))
			}
			key = strings.Trim(key, `"`)
			if _, twice := m[key]; twice {
				panic(fmt.Sprintf("line %d: %q is there twice", line, key))
			}
			m[key], text = yamlFlow(rest, line, ",}")
			text = strings.TrimLeft(strings.TrimPrefix(text, ","), " ")
		}
		return m, text[1:]
	case text[0] == '[':
		list := []any{}
		for text = strings.TrimLeft(text[1:], " "); text[0] != ']'; {
			var v any
			v, text = yamlFlow(text, line, ",]")
			list = append(list, v)
			text = strings.TrimLeft(strings.TrimPrefix(text, ","), " ")
		}
		return list, text[1:]
	case text[0] == '"':
		end := 1
		for text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		s, err := strconv.Unquote(text[:end+1])
		if err != nil {
			panic(fmt.Sprintf("line %d: %v", line, err))
		}
		return s, text[end+1:]
	}
	end := len(text)
	if stop != "" {
		if i := strings.IndexAny(text, stop); i >= 0 {
			end = i
		}
	}
	word := strings.TrimSpace(text[:end])
	switch {
	case word == "true" || word == "false":
		return word == "true", text[end:]
	case word == "null":
		return nil, text[end:]
	}
	if _, err := strconv.ParseInt(word, 10, 64); err == nil {
		return json.Number(word), text[end:]
	}
	return word, text[end:]
}

// TestYAMLReaderAgreesWithAnother reads the document with a full YAML reader too: what
// the other tests hold to the daemon is then what everybody else reads.
func TestYAMLReaderAgreesWithAnother(t *testing.T) {
	python := serial.Program(t, "python3")
	if err := exec.Command(python, "-c", "import yaml").Run(); err != nil {
		t.Skip("python3 has no module yaml to compare with")
	}
	cmd := exec.Command(python, "-c", "import json,sys,yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)")
	cmd.Stdin = strings.NewReader(string(wire.OpenAPI))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	read, err := parseYAML(string(wire.OpenAPI))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("the two readers disagree about schemas/wire/openapi.yaml")
	}
}
