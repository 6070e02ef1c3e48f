package sqlcheck

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// MaxRows is how many rows a query may have.
const MaxRows = 1000

// Config describes the query and what is wanted of its rows; see the package's comment.
type Config struct {
	Query   string   `toml:"query"`
	Params  []string `toml:"params"`
	Rows    int      `toml:"rows"`
	Columns []Column `toml:"column"`
	Ignore  []string `toml:"ignore"`
	verify.Patience
}

// Column is what a column must be in every row. Exactly one of the three is set.
type Column struct {
	Name   string  `toml:"name"`
	Equals *string `toml:"equals"`
	Field  string  `toml:"field"` // member of the change; one that it does not have is not compared
	Null   bool    `toml:"null"`
}

// Result is what a query returned: at most MaxRows+1 rows. A nil value is NULL.
type Result struct {
	Columns []string
	Rows    [][]*string
}

// Query runs the statement in a read-only transaction. A nil parameter is NULL. An error
// that another try may not have is [verify.Transient].
type Query func(ctx context.Context, query string, params []*string) (Result, error)

type look struct {
	Config
	source   string
	run      Query
	hide     verify.Secrets
	compared []string
}

var begins = regexp.MustCompile(`(?is)^\s*(select|with|values|table)\b`)

// New makes a verifier, VALIDATION_ERROR where the configuration is wrong. source names
// the database in evidence; hide is kept out of it.
func New(c Config, source string, hide verify.Secrets, run Query) (runtime.Verifier, error) {
	l := &look{Config: c, source: source, run: run, hide: hide}
	if !begins.MatchString(c.Query) || strings.Contains(c.Query, ";") {
		return nil, verify.Invalid("query", "want one statement that begins with SELECT, WITH, VALUES or TABLE, without a semicolon")
	}
	if c.Rows < 0 || c.Rows > MaxRows {
		return nil, verify.Invalid("rows", "%d: want 0 to %d", c.Rows, MaxRows)
	}
	for i, p := range c.Params {
		name, _ := strings.CutSuffix(p, "?")
		if err := verify.ChangeNames.Check(fmt.Sprintf("params.%d", i), name); err != nil {
			return nil, err
		}
		l.compared = append(l.compared, name)
	}
	for i, col := range c.Columns {
		at := fmt.Sprintf("column.%d", i)
		set := 0
		for _, is := range []bool{col.Equals != nil, col.Field != "", col.Null} {
			if is {
				set++
			}
		}
		if col.Name == "" || set != 1 {
			return nil, verify.Invalid(at, "want a name and one of equals, field and null")
		}
		if col.Field != "" {
			if err := verify.ChangeNames.Check(at+".field", col.Field); err != nil {
				return nil, err
			}
			l.compared = append(l.compared, col.Field)
		}
	}
	if err := verify.CheckIgnored(c.Ignore); err != nil {
		return nil, err
	}
	patience, err := c.Complete()
	if err != nil {
		return nil, err
	}
	return verify.NewVerifier(l.ask, patience), nil
}

func (l *look) ask(ctx context.Context, change tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	subject := verify.OfChange(change)
	source := l.source + ": " + l.Query
	fail := func(err error) (runtime.Finding, runtime.Evidence, error) {
		return runtime.CannotTell, verify.Evidence(source, map[string]any{"why": "no answer"}, nil, l.hide), err
	}
	params := make([]*string, len(l.Params))
	for i, p := range l.Params {
		name, optional := strings.CutSuffix(p, "?")
		text, err := subject.Text(name)
		if err != nil {
			return fail(err)
		}
		if text != "" {
			params[i] = &text
		} else if !optional {
			// NULL equals nothing, so the query would find no row, and "gone" would be false.
			return fail(tga.Errorf(tga.ValidationError, "params.%d: the change has no %s", i, name))
		}
	}
	result, err := l.run(ctx, l.Query, params)
	if err != nil {
		return fail(err)
	}
	finding, why := l.judge(result, change, subject)
	members := map[string]any{"why": why, "params": texts(params, l.hide), "columns": result.Columns, "row_count": len(result.Rows)}
	if len(result.Rows) > 0 {
		members["first_row"] = texts(result.Rows[0], l.hide)
	}
	return finding, verify.Evidence(source, members, nil, l.hide), nil
}

// texts are values for evidence, long ones cut.
func texts(values []*string, hide verify.Secrets) []any {
	all := make([]any, len(values))
	for i, v := range values {
		if v != nil {
			all[i] = fmt.Sprintf("%.1000s", hide.Hide(*v))
		}
	}
	return all
}

// judge says what the rows mean and why.
func (l *look) judge(r Result, change tga.StateChange, s verify.Subject) (runtime.Finding, string) {
	switch {
	case len(r.Rows) > MaxRows:
		return runtime.CannotTell, fmt.Sprintf("more than %d rows", MaxRows)
	case len(r.Rows) == 0:
		return runtime.Gone, "no row"
	case l.Rows > 0 && len(r.Rows) != l.Rows:
		return runtime.Changed, fmt.Sprintf("%d rows, want %d", len(r.Rows), l.Rows)
	}
	for _, col := range l.Columns {
		at := slices.Index(r.Columns, col.Name)
		if at < 0 {
			return runtime.CannotTell, fmt.Sprintf("no column %q in the result", col.Name)
		}
		want := col.Equals
		if col.Field != "" {
			text, err := s.Text(col.Field)
			if err != nil {
				return runtime.CannotTell, err.Error()
			}
			if text == "" {
				continue
			}
			want = &text
		}
		for _, row := range r.Rows {
			if have := row[at]; (have == nil) != (want == nil) || have != nil && *have != *want {
				return runtime.Changed, fmt.Sprintf("column %q is another", col.Name)
			}
		}
	}
	if left := verify.Unlooked(change, l.compared, l.Ignore); left != nil {
		return runtime.CannotTell, "nothing compared the change's " + strings.Join(left, " and ")
	}
	return runtime.Exists, "the rows are as wanted"
}
