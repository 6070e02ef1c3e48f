package manifest

import (
	"cmp"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// Reader reads manifests. The zero Reader knows no environment.
type Reader struct {
	// Getenv returns the values of placeholders ${NAME} and ${NAME:-default}, which may stand in
	// any value but prompts and examples. If Getenv is nil or has no value, the default is used.
	Getenv func(name string) (value string, ok bool)
	// Unenforced are JSON Pointers of restrictions that the agent is run without, each with
	// everything inside it: they become warnings. Any other restriction that is not enforced is a
	// mistake.
	Unenforced []string
}

// Document is an agent that a manifest describes.
type Document struct {
	Agent  *turn.Agent
	Report Report
}

// ReadAll reads a text of at most [MaxBytes] with one or more documents, in their order. If there
// are several, documents that are not agents are skipped, and the report of the first agent says
// so. The error is an [*Error] that lists every mistake: VALIDATION_ERROR for a text that is not
// YAML or JSON with unique names, LIMIT_EXCEEDED, SCHEMA_VIOLATION for a manifest that cannot be
// run, and POLICY_VIOLATION for a restriction that would not be enforced. After a mistake in any
// document, every document has a report and no agent.
func (o Reader) ReadAll(raw []byte) ([]Document, error) {
	roots, err := parse(raw)
	if err != nil {
		m := new(Mistake)
		if !errors.As(err, &m) {
			m = (&node{line: 1, column: 1}).mistake(tga.ValidationError, "%v", err)
		}
		return nil, &Error{Mistakes: []*Mistake{m}}
	}
	var docs []Document
	var mistakes []*Mistake
	var passed []*node
	names := map[string]int{}
	for _, root := range roots {
		if len(roots) > 1 && otherKind(root) {
			passed = append(passed, root)
			continue
		}
		doc, wrong := o.document(root)
		if a := doc.Agent; a != nil {
			if line, dup := names[a.Name]; dup {
				wrong = append(wrong, root.mistake(tga.SchemaViolation, "the agent %q stands in line %d already", a.Name, line))
			}
			names[a.Name] = root.line
		}
		docs, mistakes = append(docs, doc), append(mistakes, wrong...)
	}
	if len(docs) == 0 {
		mistakes = append(mistakes, roots[0].mistake(tga.SchemaViolation, "none of the %d documents is an Agent", len(roots)))
	}
	if len(mistakes) > 0 {
		for i := range docs {
			docs[i].Agent = nil
		}
		slices.SortStableFunc(mistakes, func(a, b *Mistake) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		return docs, &Error{Mistakes: mistakes}
	}
	for _, n := range passed {
		m := n.mistake("", "the document is %s, and only an Agent can be run: it is passed over", describe(n.at("kind")))
		docs[0].Report.Warnings = append(docs[0].Report.Warnings, Warning{Line: m.Line, Message: m.Message})
	}
	return docs, nil
}

// otherKind says that a document names a kind other than Agent.
func otherKind(root *node) bool {
	k := root.at("kind")
	return k != nil && k.kind == isText && !strings.EqualFold(k.text, "Agent")
}

func newReport() Report {
	return Report{Taken: []Taken{}, Ignored: []string{}, Contradictions: []Contradiction{}, Warnings: []Warning{}}
}

// document makes an agent of one document.
func (o Reader) document(root *node) (Document, []*Mistake) {
	r := &reader{getenv: o.Getenv, accepted: o.Unenforced, report: newReport()}
	if root.kind != isObject {
		return Document{Report: r.report}, []*Mistake{root.mistake(tga.ValidationError, "the manifest is %s, and must be an object", root.kind)}
	}
	a := r.agent(root)
	r.report.Ignored = root.ignored(r.report.Ignored)
	if len(r.mistakes) > 0 {
		a = nil
	}
	return Document{Agent: a, Report: r.report}, r.mistakes
}

// sections are the objects that contain fields. If a section were not an object, its limits would
// be lost unnoticed.
var sections = []string{
	"metadata", "spec", "spec.llm", "spec.llm.parameters", "spec.llm.retry_config", "spec.constraints", "spec.constraints.cost",
	"spec.constraints.performance", "spec.lifecycle", "spec.reliability", "spec.state", "spec.state.context_window",
	"spec.safety", "spec.security", "spec.autonomy", "spec.prompts", "spec.identity",
	"spec.memory", "spec.turn_chain", "spec.collaboration", "spec.collaboration.delegation",
}

func (r *reader) agent(root *node) *turn.Agent {
	r.head(root)
	for _, path := range sections {
		if n := root.at(path); n != nil && n.kind != isObject {
			n.used = true
			r.wrong(n, "%s is %s, and must be an object", path, n.kind)
		}
	}
	a := &turn.Agent{}
	r.name(a, root)
	set(r, &a.ID, "ID", text, root)
	if set(r, &a.Version, "Version", text, root) && !semver.MatchString(a.Version) {
		r.warn(places("Version", root)[0].node, "%q is no semantic version; it is taken as it is", a.Version)
	}
	if !set(r, &a.Role, "Role", prose, root) {
		r.warn(root, "there is no spec.role: the system prompt has nothing of it")
	}
	set(r, &a.SystemPrompt, "SystemPrompt", template, root)
	r.examples(a, root)
	r.model(a, root)
	r.constraints(a, root)
	r.reliability(a, root)
	r.handlers(a, root)
	r.state(a, root)
	r.workspace(a, root)
	r.conversation(a, root)
	r.identity(a, root)
	r.filters(a, root)
	r.autonomy(a, root)
	r.humans(a, root)
	r.guardrails(a, root)
	r.tools(a, root)
	r.restrictions(root)
	return a
}

var (
	known   = regexp.MustCompile(`^ossa/v(0\.[2-9]\d*(\.\d+)?|1(\.\d+)*)(-[0-9A-Za-z.-]+)?$`)
	semver  = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
)

// head reads apiVersion and kind.
func (r *reader) head(root *node) {
	if v := root.at("apiVersion"); v == nil {
		r.warn(root, "there is no apiVersion: read as ossa/v0.2.9")
	} else {
		v.used = true
		r.report.APIVersion = v.text
		if !known.MatchString(v.text) {
			r.warn(v, "apiVersion %q is not of OSSA 0.2 or later: read as ossa/v0.2.9", v.text)
		}
	}
	if k := root.at("kind"); k == nil {
		r.warn(root, "there is no kind: read as Agent")
	} else {
		k.used = true
		if !strings.EqualFold(k.text, "Agent") {
			r.wrong(k, "kind is %s, and only an Agent can be run", describe(k))
		}
	}
}

const mostName = 253

func (r *reader) name(a *turn.Agent, root *node) {
	before := len(r.mistakes)
	if !set(r, &a.Name, "Name", text, root) {
		if len(r.mistakes) == before {
			at := root
			if m := root.at("metadata"); m != nil {
				at = m
			}
			r.wrong(at, "there is no metadata.name")
		}
		return
	}
	if len(a.Name) > mostName || !dnsName.MatchString(a.Name) {
		r.wrong(places("Name", root)[0].node, "metadata.name is %s, and must be at most %d of a-z, 0-9 and inner hyphens", describe(places("Name", root)[0].node), mostName)
	}
}

// template reads a prompt. In the schema a template is the name of a file; in real manifests it
// is often the text itself.
func template(r *reader, p place) (string, bool) {
	if p.name == "template" && !strings.Contains(p.text, "\n") {
		r.warn(p.node, "the template is in a file, which is not read")
		return "", false
	}
	return prose(r, p)
}

func (r *reader) examples(a *turn.Agent, root *node) {
	list, ok := take(r, "Examples", entries, root)
	if !ok {
		return
	}
	for _, n := range list.items {
		var e turn.Example
		in := set(r, &e.Input, "Examples[].Input", said, n)
		out := set(r, &e.Output, "Examples[].Output", said, n)
		set(r, &e.Context, "Examples[].Context", said, n)
		if !in || !out {
			r.warn(n, "the example has no input or no output, and is left out")
			continue
		}
		a.Examples = append(a.Examples, e)
	}
}

// said reads text; any other value is read as its JSON.
func said(r *reader, p place) (string, bool) {
	if p.kind == isText {
		return p.text, true
	}
	raw, ok := value(r, p)
	return string(raw), ok
}

// codes reads error codes and leaves out unknown codes.
func codes(r *reader, p place) ([]tga.Code, bool) {
	names, ok := texts(r, p)
	if !ok {
		return nil, false
	}
	list := []tga.Code{}
	for _, name := range names {
		c := tga.Code(strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		if !slices.Contains(taxonomy, c) {
			r.warn(p.node, "%q is not an error code of OSSA, and is left out", name)
			continue
		}
		list = append(list, c)
	}
	return list, true
}

// taxonomy has the error codes of OSSA 0.2.9 §2.
var taxonomy = []tga.Code{
	tga.ValidationError, tga.SchemaViolation, tga.ContentFiltered, tga.PolicyViolation,
	tga.ToolError, tga.ToolTimeout, tga.LLMError, tga.LLMTimeout, tga.GenericStateError,
	tga.RateLimited, tga.QuotaExceeded, tga.CircuitOpen,
	tga.MaxTurnsExceeded, tga.MaxTokensExceeded, tga.DelegationFailed, tga.EscalationRequired,
}

// Environment is a [Reader.Getenv] that reads the process's environment, for manifests that may
// see it.
func Environment(name string) (string, bool) { return os.LookupEnv(name) }
