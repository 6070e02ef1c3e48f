package config_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const (
	example = "../../examples/tgad.toml"
	vkey    = "shop.example/tgad+532c0b20+AZSjhfr3rU7gRixnssh4w1clJ2lSNQmeloHvMHTrATi0"
)

// TestExampleNamesEveryKey: nobody finds a key that the example does not show.
func TestExampleNamesEveryKey(t *testing.T) {
	raw, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	rare := map[string]bool{"protocol_version": true}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for _, f := range reflect.VisibleFields(typ) {
			key := f.Tag.Get("toml")
			if key == "" || key == "-" || rare[key] {
				continue
			}
			if !strings.Contains(string(raw), key) {
				t.Errorf("the example has no %s", key)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[config.Config]())
}

// TestExampleShowsTheDefaults: the values of [limits] in the example are those of a file without this table.
func TestExampleShowsTheDefaults(t *testing.T) {
	c, err := assemble.Load(example)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Limits, config.Default().Limits; got != want {
		t.Errorf("the example's limits are\n%+v, the defaults\n%+v", got, want)
	}
}

// TestMistakesPointAtTheLine: each mistake is reported with its line and what to do.
func TestMistakesPointAtTheLine(t *testing.T) {
	server := "[[server]]\nid = \"s\"\ntype = \"http\"\nurl = \"http://h\"\n"
	tool := server + "[[tool]]\nserver = \"s\"\nname = \"t\"\n"
	own := "[[server]]\nid = \"s\"\ntype = \"external\"\n[[tool]]\nserver = \"s\"\nname = \"t\"\n"
	notRan := "not_ran = [{ status = [404] }]\n"
	body := "tool = \"t\"\ntype = \"http\"\nurl = \"http://h/{key}\"\ntries = 1\ndelay = \"1s\"\nran = [{ check = [{ pointer = \"/k\", field = \"key\" }] }]\n" + notRan
	asked := server + "[[prober]]\nserver = \"s\"\n" + body
	prober := server + "[[prober]]\n" + body
	verifier := "[[verifier]]\nresource_type = \"a\"\ntype = \"file\"\nroot = \"/\"\n"
	mcpVerifier := "[[server]]\nid = \"m\"\ntype = \"mcp-command\"\ncommand = [\"x\"]\n[[verifier]]\nresource_type = \"a\"\ntype = \"mcp\"\nserver = \"m\"\n"
	for _, x := range []struct{ name, text, line, want string }{
		{"no TOML", "profile = \n", "c.toml:1:", ""},
		{"unknown key", "a = 1\n", "c.toml:1:", `unknown key "a"`},
		{"key in capitals", "profile = \"strict\"\nPROFILE = \"spec-9.3\"\n", "c.toml:2:1:", `unknown key "PROFILE", did you mean profile?`},
		{"table in capitals", "[Limits]\npage = 5\n", "c.toml:1:", `unknown key "Limits", did you mean limits?`},
		{"key of an answer in capitals", mcpVerifier + "gone = [{ Failed = true }]\n", "c.toml:9:", "want tables"},
		{"near key", "\nallow_al = true\n", "c.toml:2:", "did you mean allow_all?"},
		{"near key in a table", "[limits]\nconnection = 1\n", "c.toml:2:", "did you mean connections?"},
		{"near key in an array", server + "conurrency = 1\n", "c.toml:5:", "did you mean concurrency?"},
		{"wrong type", "[limits]\nconnections = \"many\"\n", "c.toml:2:", ""},
		{"key twice", "profile = \"strict\"\nprofile = \"strict\"\n", "c.toml:2:", ""},
		{"profile", "profile = \"loose\"\n", "c.toml:1:", "want strict, spec-9.3 or talos"},
		{"duration", "[limits]\n\nlease_ttl = \"30\"\n", "c.toml:3:", "want a number with a unit"},
		{"negative duration", "[limits]\nlease_ttl = \"-1s\"\n", "c.toml:2:", "negative"},
		{"size", "[limits]\nrequest_bytes = \"16MB\"\n", "c.toml:2:", "KiB, MiB or GiB"},
		{"size over all", "[store]\ncache_bytes = \"99999999999GiB\"\n", "c.toml:2:", "too large"},
		{"depth", "[limits]\ndepth = 129\n", "c.toml:2:", "want 1..128"},
		{"lease over the most", "[limits]\nlease_ttl = \"2h\"\n" + "max_lease_ttl = \"1h\"\n", "c.toml:2:", "over max_lease_ttl"},
		{"evidence without a key", "[evidence]\nevery = \"1s\"\n", "c.toml:2:", "no key_file and no signer"},
		{"evidence with two keys", "[evidence]\nkey_file = \"k\"\nsigner = \"s\"\npublic_key = \"" + vkey + "\"\n", "c.toml:3:", "beside key_file"},
		{"evidence of a signer without its key", "[evidence]\nsigner = \"s\"\n", "c.toml:1:", "is required beside signer"},
		{"evidence of a key file with another key", "[evidence]\nkey_file = \"k\"\npublic_key = \"" + vkey + "\"\n", "c.toml:3:", "belongs to signer"},
		{"evidence with no public key", "[evidence]\nsigner = \"s\"\npublic_key = \"k\"\n", "c.toml:3:", "name+number+key"},
		{"evidence of an origin of two words", "[evidence]\nkey_file = \"k\"\norigin = \"two words\"\n", "c.toml:3:", "without blanks"},
		{"evidence of an origin with a tab", "[evidence]\nkey_file = \"k\"\norigin = \"a\\tb\"\n", "c.toml:3:", "control characters"},
		{"evidence at no place", "[evidence]\nkey_file = \"k\"\n[[evidence.place]]\n", "c.toml:3:", "one of file, url, git and witness"},
		{"evidence at two places at once", "[evidence]\nkey_file = \"k\"\n[[evidence.place]]\nfile = \"f\"\ngit = \"g\"\n", "c.toml:3:", "one of file, url, git and witness"},
		{"evidence at a place with a key of another kind", "[evidence]\nkey_file = \"k\"\n[[evidence.place]]\nfile = \"f\"\nremote = \"r\"\n", "c.toml:5:", "does not belong to a place with file"},
		{"evidence at an address in plain text", "[evidence]\nkey_file = \"k\"\n[[evidence.place]]\nurl = \"http://h/c\"\n", "c.toml:4:", "want https://"},
		{"evidence outside of the working tree", "[evidence]\nkey_file = \"k\"\n[[evidence.place]]\ngit = \"g\"\npath = \"../c\"\n", "c.toml:5:", "within the working tree"},
		{"evidence of a witness without a key", "[evidence]\nkey_file = \"k\"\n[[evidence.place]]\nwitness = \"https://h/\"\n", "c.toml:3:", "it is required"},
		{"evidence of a witness with no key", "[evidence]\nkey_file = \"k\"\n[[evidence.place]]\nwitness = \"https://h/\"\nkey = \"w+1\"\n", "c.toml:5:", "name+number+key"},
		{"more witnesses than there are", "[evidence]\nkey_file = \"k\"\nwitnesses = 1\n", "c.toml:3:", "there are 0 places"},
		{"server kind", "[[server]]\nid = \"s\"\ntype = \"mcp-cmd\"\n", "c.toml:3:", "want mcp-command"},
		{"server without id", "[[server]]\ntype = \"external\"\n", "c.toml:1:", "server.0.id"},
		{"server twice", server + server, "c.toml:6:", "id of another server"},
		{"command missing", "[[server]]\nid = \"s\"\ntype = \"mcp-command\"\n", "c.toml:1:", "needs a command"},
		{"key of another kind", server + "command = [\"x\"]\n", "c.toml:5:", "does not belong to type http"},
		{"url", "[[server]]\nid = \"s\"\ntype = \"mcp-url\"\nurl = \"ftp://h\"\n", "c.toml:4:", "http:// or https://"},
		{"inline table", server + "breaker = { failures = -1 }\n", "c.toml:5:", "negative"},
		{"subtable", server + "[server.retry]\ndelay = \"x\"\n", "c.toml:6:", "no duration"},
		{"status", server + "statuses = { \"999\" = \"failure\" }\n", "c.toml:5:", "status of HTTP"},
		{"status word", server + "statuses = { \"409\" = \"fine\" }\n", "c.toml:5:", "want one of"},
		{"tool of no server", "[[tool]]\nserver = \"x\"\nname = \"t\"\n", "c.toml:2:", "no [[server]]"},
		{"tool twice", server + "[[tool]]\nserver = \"s\"\nname = \"t\"\n[[tool]]\nserver = \"s\"\nname = \"t\"\n", "c.toml:10:", "row already"},
		{"class", server + "[[tool]]\nserver = \"s\"\nname = \"t\"\nclass = \"reed\"\n", "c.toml:8:", "want read or write"},
		{"licence", server + "[[tool]]\nserver = \"s\"\nname = \"t\"\nlicence = \"dedup_key\"\n", "c.toml:8:", "did you mean dedupe_key?"},
		{"licence without window", server + "[[tool]]\nserver = \"s\"\nname = \"t\"\nlicence = \"dedupe_key\"\n", "c.toml:8:", "needs the window"},
		{"program's licence of a tool that the daemon calls", tool + "client_licence = true\n", "c.toml:8:", "not of type external"},
		{"program's window within the margin", own + "licence = \"park\"\nclient_licence = true\nwindow = \"1m\"\n", "c.toml:9:", "would license nothing"},
		{"program's time in flight", own + "client_licence = true\nmax_in_flight = \"-1m\"\n", "c.toml:8:", "negative"},
		{"bound of programs without their licence", own + "window = \"1h\"\n", "c.toml:4:", "belong to dedupe_key"},
		{"window within the margin", server + "[[tool]]\nserver = \"s\"\nname = \"t\"\nlicence = \"dedupe_key\"\nwindow = \"1m\"\n", "c.toml:8:", "would license nothing"},
		{"read_only of a write tool", server + "[[tool]]\nserver = \"s\"\nname = \"t\"\nlicence = \"read_only\"\n", "c.toml:8:", "only a read tool"},
		{"doubt as not executed", server + "statuses = { \"500\" = \"not_executed\" }\n[[tool]]\nserver = \"s\"\nname = \"t\"\nlicence = \"park\"\n", "c.toml:9:", "500"},
		{"resends", server + "[[tool]]\nserver = \"s\"\nname = \"t\"\nresends = -1\n", "c.toml:8:", "want 0 to 10000"},
		{"more resends than there may be", tool + "resends = 10001\n", "c.toml:8:", "10001: want 0 to 10000"},
		{"more questions than there may be", tool + "probe = { attempts = 10001 }\n", "c.toml:8:", "10001: want 0 to 10000"},
		{"more attempts than there may be", tool + "retry = { attempts = 4294967296 }\n", "c.toml:8:", "4294967296: want 0 to 10000"},
		{"probe without a prober", tool + "licence = \"probe\"\n", "c.toml:8:", "whether t on \"s\" ran: it needs a [[prober]]"},
		{"no prober of a server that is called", tool + "licence = \"probe\"\nprober = \"none\"\n", "c.toml:9:", "only a tool of a server of type external"},
		{"prober of a word", tool + "prober = \"http\"\n", "c.toml:8:", "want none"},
		{"prober of no server", prober + "server = \"x\"\n", "c.toml:13:", "no [[server]]"},
		{"prober twice", asked + asked[len(server):], "c.toml:16:", "has a prober already"},
		{"prober of no type", server + "[[prober]]\nserver = \"s\"\ntool = \"t\"\ntype = \"htp\"\n", "c.toml:8:", "did you mean http?"},
		{"prober with a key of another type", asked + "ask_tool = \"x\"\n", "c.toml:14:", "does not belong to type http"},
		{"prober with a rule of another type", asked[:len(asked)-len(notRan)] + "not_ran = [{ failed = true, check = [{ pointer = \"/a\" }] }]\n", "c.toml:13:", "prober.0.not_ran.0.failed"},
		{"prober that asks nothing", server + "[[prober]]\nserver = \"s\"\ntool = \"t\"\ntype = \"http\"\nurl = \"http://h/{key}\"\n", "c.toml:5:", "prober.0"},
		{"prober in a table of tables", asked + "[prober.reply]\nresult = \"x\"\n", "c.toml:15:", "JSON Pointer"},
		{"patience past the send", asked + "settle = \"30s\"\n" + tool[len(server):] + "licence = \"probe\"\n", "c.toml:14:", "not within the send_timeout of t, 30s"},
		{"patience that is no duration", asked + "settle = \"long\"\n", "c.toml:14:", "no duration"},
		{"replay", tool + "replay = \"warm\"\n", "c.toml:8:", "did you mean warn?"},
		{"backoff", tool + "retry = { first = \"2s\", max = \"1s\" }\n", "c.toml:8:", "over max"},
		{"retry under spec-9.3", "profile = \"spec-9.3\"\n" + tool + "retry = { attempts = 1 }\n", "c.toml:9:", "makes no new attempts"},
		{"undo without an inverse", tool + "auto_compensate = true\n", "c.toml:8:", "no inverse"},
		{"inverse on no server", tool + "inverse = { server = \"x\", name = \"u\", args = \"{}\" }\n", "c.toml:8:", "no [[server]]"},
		{"inverse that is no JSON", tool + "[tool.inverse]\nname = \"u\"\nargs = \"{\"\n", "c.toml:10:", "tool.0.inverse.args"},
		{"class of an outcome", tool + "[[tool.outcome]]\nis_error = true\nclass = \"permanent_failure\"\n[[tool.outcome]]\nis_error = true\nclass = \"fatal\"\n", "c.toml:13:", "tool.0.outcome.1.class"},
		{"doubt as retryable", tool + "[[tool.outcome]]\nstatus = [503]\nclass = \"retryable_failure\"\n", "c.toml:", "tool.0.outcome.0"},
		{"change without an id", tool + "change = [{ resource_type = \"a\", operation = \"b\" }]\n", "c.toml:8:", "tool.0.change.0.resource_id"},
		{"unknown key in a table of tables", tool + "[[tool.outcome]]\nclas = \"success\"\n", "c.toml:9:", "did you mean class?"},
		{"form of an answer", tool + "answer = \"mcp\"\n", "c.toml:8:", "have the form json"},
		{"key's place", tool + "key = { header = \"Host\" }\n", "c.toml:8:", "cannot carry the key"},
		{"key's origin", tool + "key = { from = \"order\" }\n", "c.toml:8:", "no JSON Pointer"},
		{"log", tool + "log = \"all\"\n", "c.toml:8:", "want none"},
		{"drift", "[[server]]\nid = \"s\"\ntype = \"external\"\ndrift = \"blok\"\n", "c.toml:4:", "did you mean block?"},
		{"call id", "[[server]]\nid = \"s\"\ntype = \"external\"\ncall_ids = [\"\"]\n", "c.toml:4:", "1 to 255 bytes"},
		{"verifier of no type", "[[verifier]]\nresource_type = \"a\"\ntype = \"ftp\"\n", "c.toml:3:", "want one of file, git, github, http, mcp, postgres, sqlite"},
		{"verifier of nothing", "[[verifier]]\ntype = \"file\"\nroot = \"/\"\n", "c.toml:1:", "want 1 to 64"},
		{"verifier of a long name", "[[verifier]]\nresource_type = \"" + strings.Repeat("x", 65) + "\"\ntype = \"file\"\nroot = \"/\"\n", "c.toml:2:", "want 1 to 64"},
		{"verifier twice", verifier + verifier, "c.toml:6:", "has a verifier already"},
		{"verifier's missing key", "[[verifier]]\nresource_type = \"a\"\ntype = \"file\"\n", "c.toml:1:", "verifier.0.root"},
		{"verifier's key of another type", verifier + "url = \"http://h\"\n", "c.toml:5:", "does not belong to type file"},
		{"verifier's check", "[[verifier]]\nresource_type = \"a\"\ntype = \"http\"\nurl = \"http://h/{resource_id}\"\n[[verifier.check]]\npointer = \"/a\"\n[[verifier.check]]\npointer = \"b\"\n", "c.toml:8:", "verifier.0.check.1.pointer"},
		{"verifier's statuses", "[[verifier]]\nresource_type = \"a\"\ntype = \"http\"\nurl = \"http://h/{resource_id}\"\ngone = [{ failed = true }]\n", "c.toml:5:", "want statuses"},
		{"verifier's tables", mcpVerifier + "gone = [404]\n", "c.toml:9:", "want tables"},
		{"verifier's unknown key in a table", mcpVerifier + "gone = [{ fail = true }]\n", "c.toml:9:", "want tables"},
		{"verifier of no MCP server", server + strings.Replace(mcpVerifier[strings.Index(mcpVerifier, "[[verifier"):], "\"m\"", "\"s\"", 1), "c.toml:8:", "speaks MCP"},
		{"verifier's secret", "[[verifier]]\nresource_type = \"github_pr\"\ntype = \"github\"\ntoken_file = \"/nonexistent\"\n", "c.toml:4:", "no such file"},
		{"profile misspelt", "profile = \"talo\"\n", "c.toml:1:", "did you mean talos?"},
		{"talos without a key file", "profile = \"talos\"\n", "c.toml:1:", "name a key_file under [capability]"},
		{"talos and a server's name", talos + "[[server]]\nid = \"a.b\"\ntype = \"external\"\n", "c.toml:5:", "want 1 to 128 of a-z 0-9 _ -"},
		{"talos and a tool's name", talos + "[[server]]\nid = \"s\"\ntype = \"external\"\n[[tool]]\nserver = \"s\"\nname = \"Tool\"\n", "c.toml:9:", "want 1 to 128 of a-z 0-9 _ -"},
		{"talos and a path's name", talos + "[[server]]\nid = \"s\"\ntype = \"http\"\nurl = \"http://h\"\n[server.paths]\n\"a/b\" = \"x\"\n", "c.toml:", "want 1 to 128 of a-z 0-9 _ -"},
		{"tokens without a key file", "[capability]\nrequired = true\n", "c.toml:1:", "without a key file"},
		{"issuer", "[capability]\nkey_file = \"k\"\nissuer = \"a b\"\n", "c.toml:3:", "want 1 to 255"},
		{"lifetime over the most", "[capability]\nkey_file = \"k\"\nlifetime = \"721h\"\n", "c.toml:3:", "at most 720h"},
		{"key ring without a key", "[keyring]\npath = \"k\"\n", "c.toml:", "or kek_socket"},
		{"key ring of a file and a command", "[keyring]\npath = \"k\"\nkek_file = \"f\"\nkek_command = [\"c\"]\n", "c.toml:4:", "one of them"},
		{"key ring of a file and a socket", "[keyring]\npath = \"k\"\nkek_file = \"f\"\nkek_socket = \"s\"\n", "c.toml:4:", "one of them"},
		{"key ring of a command and a socket", "[keyring]\npath = \"k\"\nkek_command = [\"c\"]\nkek_socket = \"s\"\n", "c.toml:4:", "one of them"},
		{"key ring of a file that is asked", "[keyring]\npath = \"k\"\nkek_file = \"f\"\nkek_timeout = \"1s\"\n", "c.toml:4:", "kek_socket"},
		{"socket of no key ring", "[keyring]\nkek_socket = \"s\"\n", "c.toml:2:", "it needs keyring.path"},
		{"lifetime of half a second", "[capability]\nkey_file = \"k\"\nlifetime = \"500ms\"\n", "c.toml:3:", "whole seconds"},
		{"skew over the most", "[capability]\nkey_file = \"k\"\nskew = \"10m1s\"\n", "c.toml:3:", "over 10m"},
		{"decision", "[[rule]]\ndecision = \"ALLOW\"\n", "c.toml:2:", "want APPROVE, DENY or NEEDS_APPROVAL"},
		{"rule of votes that asks nobody", "[[rule]]\ndecision = \"APPROVE\"\nrequired = 2\n", "c.toml:2:", "belong to NEEDS_APPROVAL"},
		{"rationale", "[[rule]]\ndecision = \"DENY\"\nrationale = \"no\"\n", "c.toml:3:", "want 10 to 1000"},
		{"risk", "[[rule]]\ndecision = \"DENY\"\nrisk = \"LOW\"\n", "c.toml:3:", "want READ"},
		{"rules and allow_all", "allow_all = true\n[[rule]]\ndecision = \"DENY\"\n", "c.toml:1:", "beside rules"},
		{"role of nobody", "[[role]]\nverbs = [\"read\"]\n", "c.toml:1:", "names nobody"},
		{"role of no verb", "[[role]]\nuid = [0]\n", "c.toml:1:", "permits nothing"},
		{"verb", "[[role]]\nuid = [0]\nverbs = [\"write\"]\n", "c.toml:3:", "want read, append, decide or admin"},
		{"uid", "[[role]]\nuid = [-1]\nverbs = [\"read\"]\n", "c.toml:2:", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := parsed(t, "c.toml", []byte(x.text))
			if tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), x.line) || !strings.Contains(err.Error(), x.want) {
				t.Errorf("error\n%v\nwant %s %s", err, x.line, x.want)
			}
		})
	}
}

const talos = "profile = \"talos\"\n[capability]\nkey_file = \"k\"\n"

// TestLimitsOfTrustAreReached: a value at a limit is accepted. TestMistakesPointAtTheLine has the same value
// one past it.
func TestLimitsOfTrustAreReached(t *testing.T) {
	for _, text := range []string{
		"[[verifier]]\nresource_type = \"" + strings.Repeat("x", 64) + "\"\ntype = \"file\"\nroot = \"/\"\n",
		"[capability]\nkey_file = \"k\"\nlifetime = \"720h\"\nskew = \"10m\"\nissuer = \"" + strings.Repeat("x", 255) + "\"\n",
		"[capability]\nkey_file = \"k\"\nlifetime = \"1s\"\n",
		talos + "[[server]]\nid = \"s_-9\"\ntype = \"external\"\n[[tool]]\nserver = \"s_-9\"\nname = \"*\"\n[[tool]]\nserver = \"s_-9\"\nname = \"t\"\n",
		"[[server]]\nid = \"s\"\ntype = \"external\"\ncall_ids = [\"" + strings.Repeat("x", 255) + "\"]\n",
		"[[server]]\nid = \"s\"\ntype = \"external\"\n[[tool]]\nserver = \"s\"\nname = \"t\"\nlicence = \"probe\"\nprober = \"none\"\n",
	} {
		if _, err := parsed(t, "c.toml", []byte(text)); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

// TestMistakesPointAtTheColumn: the error has the column of the key, also for a key of an inline table.
func TestMistakesPointAtTheColumn(t *testing.T) {
	for text, want := range map[string]string{
		"  allow_al = true\n": "c.toml:1:3: unknown key",
		"[[server]]\nid = \"s\"\ntype = \"http\"\nurl = \"http://h\"\nbreaker = { trials = 1, failures = -1 }\n": "c.toml:5:25: server.0.breaker.failures",
		"profile = \n":  "c.toml:1:11: ",
		"profile = 1\n": "c.toml:1:11: ",
		"limits = { lease_ttl = \"1s\", page = -1 }\n": "c.toml:1:30: limits.page",
	} {
		if _, err := config.Parse("c.toml", []byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestAllMistakesAreReported: one reading of the file reports all of its mistakes.
func TestAllMistakesAreReported(t *testing.T) {
	_, err := parsed(t, "c.toml", []byte("profile = \"x\"\n[limits]\ndepth = -1\n[[rule]]\ndecision = \"x\"\n"+
		"[[verifier]]\nresource_type = \"a\"\ntype = \"file\"\n[[verifier]]\nresource_type = \"b\"\ntype = \"sqlite\"\nfile = \"f\"\n[capability]\nskew = \"x\"\n"))
	if err == nil {
		t.Fatal("accepted")
	}
	at := -1
	for _, want := range []string{"c.toml:1:1: profile", "    1 | profile = \"x\"", "c.toml:3:1: limits.depth", "c.toml:5:1: rule.0.decision", "c.toml:6:3: verifier.0.root", "c.toml:9:3: verifier.1.query", "c.toml:14:1: capability.skew"} {
		i := strings.Index(err.Error(), want)
		if i <= at {
			t.Errorf("%q is missing or out of order in\n%v", want, err)
		}
		at = i
	}
}

func TestNothingWrittenAllowsNothing(t *testing.T) {
	request := &tga.Artifact{Type: tga.RequestType, Request: &tga.ActionRequest{
		RiskLevel: tga.RiskRead, Proposal: tga.Proposal{ToolServer: "s", ToolName: "t"},
	}}
	for text, want := range map[string]string{
		"": tga.Deny, "allow_all = true": tga.Approve, "[[rule]]\nserver = \"other\"\ndecision = \"APPROVE\"": tga.Deny,
		"[[rule]]\ntool = \"t\"\ndecision = \"NEEDS_APPROVAL\"": tga.NeedsApproval,
	} {
		c, err := parsed(t, "", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Supervisor()
		if err != nil {
			t.Fatal(err)
		}
		v, err := s.Decide(t.Context(), request)
		if err != nil || v.Decision != want || v.PolicyHash.IsZero() {
			t.Errorf("%q decides %+v %v, want %s", text, v, err, want)
		}
	}
}

// TestPolicyHashIsOfTheRules: a different table has a different hash, and an equal table has the same one.
func TestPolicyHashIsOfTheRules(t *testing.T) {
	hash := func(text string) tga.Digest {
		c, err := parsed(t, "", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Supervisor()
		if err != nil {
			t.Fatal(err)
		}
		return s.PolicyHash
	}
	one := hash("[[rule]]\ndecision = \"APPROVE\"\n")
	if one != hash("# a comment\n[[rule]]\ndecision='APPROVE'\n") {
		t.Error("the hash is of the text")
	}
	for _, other := range []string{"", "allow_all = true", "[[rule]]\ndecision = \"DENY\"", "[[rule]]\nserver = \"s\"\ndecision = \"APPROVE\""} {
		if one == hash(other) {
			t.Errorf("%q has the same hash", other)
		}
	}
	// sha256 of [{"decision":"APPROVE","rationale":"","required":0,"risk":"","server":"","tool":"","within_ms":0}]
	want := tga.Sum([]byte(`[{"decision":"APPROVE","rationale":"","required":0,"risk":"","server":"","tool":"","within_ms":0}]`))
	if one != want {
		t.Errorf("hash %s, want %s", one, want)
	}
}

func TestPolicyOfTheFile(t *testing.T) {
	c, err := assemble.Load(example)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := c.Policy("payments", "charge"); !ok || !reflect.DeepEqual(p, runtime.Policy{
		Class: tga.ClassWrite, LicenceSet: true, SendTimeout: 20 * time.Second, Resends: 2,
		Licence: ledger.Licence{Kind: ledger.DedupeKey, Window: 24 * time.Hour, Margin: time.Minute},
	}) {
		t.Errorf("charge: %+v %v", p, ok)
	}
	if p, ok := c.Policy("crm", "anything"); !ok || p.PermitTime != 5*time.Minute || p.LicenceSet {
		t.Errorf("crm's others: %+v %v", p, ok)
	}
	// A permit's time may be shorter than the send time-out: the shorter bounds an executor's send.
	brief, err := parsed(t, "", []byte("[[server]]\nid=\"s\"\ntype=\"external\"\n[[tool]]\nserver=\"s\"\nname=\"t\"\nsend_timeout=\"2s\"\npermit_time=\"1s\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := brief.Policy("s", "t"); p.PermitTime != time.Second || p.SendTimeout != 2*time.Second {
		t.Errorf("a short permit: %+v", p)
	}
	claims, err := parsed(t, "", []byte("[[server]]\nid=\"s\"\ntype=\"external\"\n[[tool]]\nserver=\"s\"\nname=\"t\"\nlicence=\"park\"\nclient_licence=true\nwindow=\"24h\"\nmargin=\"1s\"\nmax_in_flight=\"1m\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := claims.Policy("s", "t"); !p.ClientLicence || p.Licence != (ledger.Licence{Kind: ledger.Park, Window: 24 * time.Hour, Margin: time.Second, MaxInFlight: time.Minute}) {
		t.Errorf("a program's licence and its bounds: %+v", p)
	}
	if _, ok := c.Policy("payments", "unknown"); ok {
		t.Error("a tool without a row has a policy")
	}
	most := "resends = 10000\nprobe = { attempts = 10000 }\nretry = { attempts = 10000 }\n"
	if _, err := parsed(t, "", []byte("[[server]]\nid=\"s\"\ntype=\"external\"\n[[tool]]\nserver=\"s\"\nname=\"t\"\n"+most)); err != nil {
		t.Error(err)
	}
	none, err := parsed(t, "", []byte("[[server]]\nid=\"s\"\ntype=\"external\"\n[[tool]]\nserver=\"s\"\nname=\"t\"\nresends=0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := none.Policy("s", "t"); p.Resends >= 0 {
		t.Errorf("resends = 0 gives %d, which the runtime takes for its default", p.Resends)
	}
}

func TestRoleOfAPeer(t *testing.T) {
	c, err := assemble.Load(example)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.RoleOf(0, 990, 7); r.Namespace != config.AnyNamespace || !r.Has(config.Admin) {
		t.Errorf("the first role that matches: %+v", r)
	}
	if r := c.RoleOf(5, 990, 5); r.Namespace != "shop" || !r.Has(config.Append) || r.Has(config.Decide) || r.Has(config.Admin) {
		t.Errorf("a group's: %+v", r)
	}
	if r := c.RoleOf(5, 5, 5); len(r.Verbs) != 0 {
		t.Errorf("with roles in the file the daemon's own uid has %+v", r)
	}
	if r := config.Default().RoleOf(5, 5, 5); !r.Has(config.Read) || !r.Has(config.Append) || !r.Has(config.Decide) || !r.Has(config.Admin) || r.Namespace != config.AnyNamespace {
		t.Errorf("without roles the daemon's own uid has %+v", r)
	}
	if r := config.Default().RoleOf(0, 0, 5); len(r.Verbs) != 0 {
		t.Errorf("without roles root has %+v", r)
	}
}

// TestProberOfATool: a tool's own row comes before the server's *, and no row of another server counts.
func TestProberOfATool(t *testing.T) {
	c, err := parsed(t, "c.toml", []byte(row("a", "*")+row("a", "t")+"[[server]]\nid = \"a\"\ntype = \"external\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[[2]string]int{{"a", "t"}: 1, {"a", "u"}: 0, {"b", "t"}: -1} {
		if got := c.ProberOf(tool[0], tool[1]); got != want {
			t.Errorf("%v has prober %d, want %d", tool, got, want)
		}
	}
}

func row(server, tool string) string {
	return fmt.Sprintf(`
[[prober]]
server = %q
tool = %q
type = "http"
url = "http://h/{key}"
ran = [{ check = [{ pointer = "/k", field = "key" }] }]
not_ran = [{ status = [404] }]
`, server, tool)
}
