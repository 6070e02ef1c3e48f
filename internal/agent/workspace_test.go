package agent

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/modelserver"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// desk is an agent with a workspace, and the tool server that changes it from outside.
type desk struct {
	*testing.T
	dir      string // the manifest's directory; work and notes.db are in it
	data     string
	manifest string
	script   []modelserver.Answer
}

func newDesk(t *testing.T, workspace string, script ...modelserver.Answer) *desk {
	d := &desk{T: t, dir: t.TempDir(), data: filepath.Join(t.TempDir(), "data"), script: script}
	d.manifest = filepath.Join(d.dir, "a.yaml")
	d.must(os.Mkdir(d.at("work"), 0o755))
	d.write("a.yaml", "apiVersion: ossa/v0.2.9\nkind: Agent\nmetadata: {name: clerk}\nspec:\n  role: r\n  llm: {provider: local, model: m1}\n"+
		"  tools: [{type: http, server: desk, name: good}, {type: http, server: desk, name: bad}, {type: mcp, server: tgad-state}]\n  "+workspace+"\n")
	return d
}

func (d *desk) at(name string) string { return filepath.Join(d.dir, name) }

func (d *desk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *desk) write(name, text string) {
	d.Helper()
	d.must(os.WriteFile(d.at(name), []byte(text), 0o600))
}

// notes runs a statement on the database, as another program would.
func (d *desk) notes(statement string) (rows []string) {
	d.Helper()
	db, err := sql.Open("sqlite", d.at("notes.db"))
	d.must(err)
	defer func() { d.must(db.Close()) }()
	got, err := db.Query(statement)
	d.must(err)
	defer func() { d.must(errors.Join(got.Err(), got.Close())) }()
	for got.Next() {
		var s string
		d.must(got.Scan(&s))
		rows = append(rows, s)
	}
	return rows
}

// ServeHTTP is the tool server: good and bad do the same, but bad answers that it failed.
func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	d.must(err)
	var in struct{ Text string }
	d.must(json.Unmarshal(body, &in))
	d.write("work/"+in.Text, in.Text)
	d.must(os.RemoveAll(d.at("work/kept/" + in.Text)))
	d.notes("insert into notes values ('" + in.Text + "')")
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/bad" {
		w.WriteHeader(http.StatusConflict)
	}
	fmt.Fprint(w, `{}`)
}

// open builds the agent, as tgad agent does.
func (d *desk) open(more ...string) (*Host, error) {
	d.Helper()
	m, err := modelserver.Start(modelserver.Options{ByConversation: true, Script: d.script})
	d.must(err)
	tool := httptest.NewServer(d)
	d.Cleanup(func() {
		tool.Close()
		d.must(m.Close())
	})
	text := fmt.Sprintf("[[model]]\nprovider = \"local\"\ntype = \"openai\"\nurl = %q\n[[server]]\nid = \"desk\"\ntype = \"http\"\nurl = %q\nstatuses = { \"409\" = \"failure\" }\n"+
		"[[rule]]\ndecision = \"APPROVE\"\nrationale = \"all calls are approved here\"\n", m.URL(), tool.URL) + strings.Join(more, "\n")
	d.write("tgad.toml", text)
	conf, err := assemble.Load(d.at("tgad.toml"))
	d.must(err)
	return Open(Options{Data: d.data, Config: conf, Manifests: []string{d.manifest}})
}

func asks(name, args string) modelserver.Answer {
	return modelserver.Answer{ToolCalls: []modelserver.ToolCall{{ID: "c1", Name: name, Arguments: args}}}
}

const wholeWorkspace = "workspace: {directory: work, exclude: [kept], database: notes.db}"

// TestCallsAreTransactionsOverTheWorkspace: only calls that succeed change the workspace that a
// manifest declares, whoever writes there.
func TestCallsAreTransactionsOverTheWorkspace(t *testing.T) {
	d := newDesk(t, wholeWorkspace,
		asks("good", `{"text":"one"}`), asks("bad", `{"text":"two"}`), asks("good", `{"text":"three"}`), modelserver.Answer{Text: "done"})
	d.notes("create table notes (text)")
	d.must(os.MkdirAll(d.at("work/kept/one"), 0o755))
	h, err := d.open()
	d.must(err)
	res, err := h.Run(t.Context(), turn.Request{Agent: "clerk", SessionID: "s", Message: []byte("go")})
	if err != nil || res.Text != "done" || len(res.Effects) != 3 || res.Effects[1].Status != turn.ToolFailed {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := d.names("work"); !slices.Equal(got, []string{"kept", "one", "three"}) {
		t.Errorf("the directory has %v", got)
	}
	if got := d.notes("select text from notes"); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("the database has %v", got)
	}
	if got := d.names("work/kept"); len(got) != 0 {
		t.Errorf("what is excluded was put back: %v", got)
	}
	d.must(h.Close(context.Background()))

	// A later process finds the same state, with a boundary for each call.
	h, err = d.open()
	d.must(err)
	list, err := workstate.States(t.Context(), h.db)
	if err != nil || len(list) != 1 || list[0].Boundaries != 3 || list[0].Open != 0 || list[0].ID != h.places.opened[0].ID() {
		t.Errorf("states %+v, %v", list, err)
	}
	d.must(h.Close(context.Background()))
}

func (d *desk) names(dir string) (names []string) {
	d.Helper()
	all, err := os.ReadDir(d.at(dir))
	d.must(err)
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// TestAgentReadsAndSetsItsState: with its tools, in one turn and in a turn of the next session.
// Only calls that succeed set values.
func TestAgentReadsAndSetsItsState(t *testing.T) {
	d := newDesk(t, "state: {mode: persistent}",
		asks("state_set", `{"key":"plan","value":{"step":1.0}}`), asks("state_append", `{"key":"log","value":"a"}`),
		asks("state_set", `{"key":"plan","value":2,"ttl_seconds":0}`), asks("state_get", `{"keys":["plan","log","none"]}`), modelserver.Answer{Text: "done"})
	h, err := d.open()
	d.must(err)
	res, err := h.Run(t.Context(), turn.Request{Agent: "clerk", SessionID: "s", Message: []byte("go")})
	if err != nil || res.Text != "done" || len(res.Effects) != 4 {
		t.Fatalf("%+v, %v", res, err)
	}
	if e := res.Effects[2]; e.Status != turn.ToolFailed || e.Failure.Code != tga.SchemaViolation {
		t.Errorf("a time to live of 0: %+v", e)
	}
	if got, want := res.Effects[3].Output, `{"values":{"log":["a"],"plan":{"step":1}}}`; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	d.must(h.Close(context.Background()))

	d.script = []modelserver.Answer{asks("state_delete", `{"key":"log"}`), asks("state_get", `{"keys":["plan","log"]}`), {Text: "done"}}
	h, err = d.open()
	d.must(err)
	res, err = h.Run(t.Context(), turn.Request{Agent: "clerk", SessionID: "other", Message: []byte("go")})
	if err != nil || res.Text != "done" || res.Effects[1].Output != `{"values":{"plan":{"step":1}}}` {
		t.Fatalf("%+v, %v", res, err)
	}
	d.must(h.Close(context.Background()))
}

// TestRulesDecideAboutTheStateTools: as about any other tool.
func TestRulesDecideAboutTheStateTools(t *testing.T) {
	d := newDesk(t, "state: {mode: persistent}", asks("state_set", `{"key":"k","value":1}`), modelserver.Answer{Text: "done"})
	h, err := d.open()
	d.must(err)
	d.must(h.Close(context.Background()))
	d.write("tgad.toml", strings.Replace(d.read("tgad.toml"), "[[rule]]", "[[rule]]\nserver = \"tgad-state\"\ndecision = \"DENY\"\nrationale = \"agents keep nothing here\"\n[[rule]]", 1))
	conf, err := assemble.Load(d.at("tgad.toml"))
	d.must(err)
	h, err = Open(Options{Data: d.data, Config: conf, Manifests: []string{d.manifest}})
	d.must(err)
	res, err := h.Run(t.Context(), turn.Request{Agent: "clerk", SessionID: "s", Message: []byte("go")})
	if err != nil || len(res.Effects) != 1 || res.Effects[0].Status != turn.ToolFailed {
		t.Errorf("%+v, %v", res, err)
	}
	d.must(h.Close(context.Background()))
	if _, err := d.open("[[server]]\nid = \"tgad-state\"\ntype = \"http\"\nurl = \"http://127.0.0.1:1\""); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a server of that name: %v", err)
	}
}

func (d *desk) read(name string) string {
	d.Helper()
	raw, err := os.ReadFile(d.at(name))
	d.must(err)
	return string(raw)
}

// TestWorkspaceIsWhereItMayBe: it must lie below the manifest's directory or where the operator
// allows it, after links and dots are resolved. Elsewhere a rollback would remove files that are
// not the agent's.
func TestWorkspaceIsWhereItMayBe(t *testing.T) {
	elsewhere := t.TempDir()
	for _, c := range []struct {
		workspace string
		allowed   []string
		code      tga.Code
	}{
		{"directory: work", nil, ""},
		{"directory: .", nil, ""},
		{"database: new/notes.db", nil, ""},
		{"directory: ..", nil, tga.PermissionDenied},
		{"directory: work/../../other", nil, tga.PermissionDenied},
		{"directory: /", nil, tga.PermissionDenied},
		{"directory: " + elsewhere, nil, tga.PermissionDenied},
		{"directory: link", nil, tga.PermissionDenied},
		{"database: link/notes.db", nil, tga.PermissionDenied},
		{"database: dangling", nil, tga.ValidationError},
		{"directory: dangling/work", nil, tga.ValidationError},
		{"directory: " + elsewhere, []string{elsewhere}, ""},
		{"directory: link", []string{elsewhere}, ""},
		{"directory: " + elsewhere + "x", []string{elsewhere}, tga.PermissionDenied},
		{"database: " + filepath.Join(elsewhere, "a", "notes.db"), []string{elsewhere}, ""},
	} {
		d := newDesk(t, "workspace: {"+c.workspace+"}")
		d.must(os.Symlink(elsewhere, d.at("link")))
		d.must(os.Symlink(filepath.Join(elsewhere, "not yet"), d.at("dangling")))
		docs, err := Reading{Workspaces: c.allowed}.Read(d.manifest)
		if tga.CodeOf(err) != c.code {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			for _, p := range []string{docs[0].Agent.Workspace.Directory, docs[0].Agent.Workspace.Database} {
				if p != "" && (!filepath.IsAbs(p) || strings.Contains(p, "link")) {
					t.Errorf("%+v: %s", c, p)
				}
			}
		}
	}
}

// TestAgentsShareAWorkspaceOrHaveTheirOwn: two agents with the same workspace have one state. Two
// agents whose workspaces overlap otherwise are refused, because each would restore files of the
// other.
func TestAgentsShareAWorkspaceOrHaveTheirOwn(t *testing.T) {
	for _, c := range []struct {
		one, two string
		states   int
		code     tga.Code
	}{
		{"directory: work", "directory: work", 1, ""},
		{"directory: work", "directory: other", 2, ""},
		{"directory: work", "directory: work/sub", 0, tga.ValidationError},
		{"directory: work", "directory: work, exclude: [a]", 0, tga.ValidationError},
		{"directory: work", "database: work/notes.db", 0, tga.ValidationError},
		{"database: notes.db", "database: notes.db", 1, ""},
	} {
		d := newDesk(t, "workspace: {"+c.one+"}")
		d.must(errors.Join(os.MkdirAll(d.at("work/sub"), 0o755), os.Mkdir(d.at("other"), 0o755)))
		d.write("b.yaml", strings.NewReplacer("clerk", "second", "{"+c.one+"}", "{"+c.two+"}").Replace(d.read("a.yaml")))
		agents, err := Reading{}.ReadAll([]string{d.manifest, d.at("b.yaml")})
		d.must(err)
		conf := config.Default()
		conf.Models = []config.Model{{Provider: "local", Type: config.OpenAI}}
		h, err := Open(Options{Data: d.data, Config: conf, Manifests: []string{d.manifest, d.at("b.yaml")}})
		if tga.CodeOf(err) != c.code {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil {
			continue
		}
		if got := len(h.places.opened); got != c.states || h.places.states[agents[0].Name] == nil || h.places.states[agents[1].Name] == nil {
			t.Errorf("%+v: %d states", c, got)
		}
		d.must(h.Close(context.Background()))
	}
}
