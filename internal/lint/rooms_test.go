package lint

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// rooms are the packages of the module. Each line says what the package owns and which packages of the
// module it imports. docs/ARCHITECTURE.md prints the table. A package that owns nothing of its own
// belongs to the one above it. Test files may import any package.
var rooms = []struct{ path, owns, imports string }{
	// The contract, and what every package uses: no I/O.
	{"schemas", `JSON Schemas; the OpenAPI document, embedded; contract types, transition table, canonical JSON, digests, error codes`, ""},
	{"schemas/tga", "", ""},
	{"schemas/wire", "", "schemas/tga wal/chain"},
	{"keyspace", `every key of the store, those of attachments too: byte order is tuple order, no id can cross a prefix`, "schemas/tga"},
	{"ledger", `idempotency records, the dispatch decision, licences, outcome classes`, "keyspace schemas/tga"},

	// The log and the store.
	{"wal/chain", `what makes entries a valid log; sealed archive files; the export format; the rules by which stores seal and erase; a chain for tests`, "schemas/tga"},
	{"internal/segment", "", "schemas/tga wal/chain"},
	{"internal/ndjson", "", "schemas/tga wal/chain"},
	{"internal/sealrules", "", "keyspace schemas/tga wal/chain"},
	{"internal/chaintest", "", "schemas/tga wal/chain"},
	{"wal", "the log on disk: segments, records, reader, the scan after a crash, body files, copies, rewriting in place; when a segment is rewritten is `engine`'s to say", "schemas/tga"},
	{"internal/vector", `the log's bytes for the golden vectors`, "schemas/tga wal"},
	{"engine", "the store: append, leases, checkpoints, global order, check, backup, over `wal` and its index in Pebble. The only importer of Pebble, but for its file systems", "engine/internal/guard internal/access internal/backup/manifest internal/clip internal/filelock internal/sealrules keyspace ledger schemas/tga wal wal/chain internal/segment internal/diskfs"},
	{"engine/internal/guard", "", "internal/diskfs schemas/tga"},
	{"internal/backup/manifest", "", "internal/access schemas/tga"},

	// The runtime, and the transports that it sends calls through.
	{"runtime", "the loop, recovery, remote executors, approvals, probes, confirmation, new attempts, compensation; `Store`, `Dispatcher`, `Supervisor`, `Verifier`, `Prober`", "internal/clip internal/clock internal/mcpfront/call keyspace ledger schemas/tga wal/chain"},
	{"internal/sealrules/sealtest", "the suite that every store passes that can be sealed", "internal/chaintest keyspace ledger runtime runtime/storetest schemas/tga wal/chain"},
	{"runtime/storetest", "the suite that every `Store` passes", "ledger runtime schemas/tga wal/chain"},
	{"runtime/dispatch", `routing, time-outs, transport retry, breaker, HTTP; what *not sent* means, for every transport; MCP servers; raw messages, revisions, codes and processes of MCP, for both sides of it`, "runtime internal/onwire schemas/tga wal/chain"},
	{"runtime/dispatch/httpcall", "", "ledger runtime internal/onwire schemas/tga wal/chain"},
	{"internal/onwire", "", "runtime schemas/tga"},
	{"runtime/mcp", "", "internal/clip internal/mcpanswer internal/mcpraw internal/onwire ledger runtime runtime/dispatch/httpcall schemas/tga"},
	{"internal/mcpraw", "", "internal/clip schemas/tga"},
	{"runtime/client", `the daemon's Go client; links no Pebble; what turns requests and results into messages, for it and the daemon`, "ledger runtime schemas/tga wal/chain internal/travel schemas/wire internal/onwire"},
	{"internal/travel", "", "ledger runtime schemas/tga schemas/wire"},
	{"internal/outcome", `rules that read an answer; signed capabilities`, "ledger runtime schemas/tga"},
	{"internal/capability", "", "internal/access runtime schemas/tga"},
	{"internal/verify", `what asks the world: HTTP, GitHub, files, git, PostgreSQL, SQLite, MCP; one package each, so that a program links what it uses`, "internal/clip internal/secretfile ledger runtime schemas/tga"},
	{"internal/verify/internal/web", "", "internal/secretfile internal/verify runtime"},
	{"internal/verify/filecheck", "", "runtime internal/verify schemas/tga"},
	{"internal/verify/gitcheck", "", "internal/clip runtime internal/verify schemas/tga"},
	{"internal/verify/github", "", "runtime internal/verify internal/verify/internal/web schemas/tga"},
	{"internal/verify/httpcheck", "", "ledger runtime internal/verify internal/verify/internal/web schemas/tga"},
	{"internal/verify/mcpcheck", "", "runtime internal/verify schemas/tga"},
	{"internal/verify/sqlcheck", "", "runtime internal/verify schemas/tga"},
	{"internal/verify/pgcheck", "", "runtime internal/verify internal/verify/sqlcheck"},
	{"internal/verify/sqlitecheck", "", "runtime internal/verify internal/verify/sqlcheck"},
	{"runtime/workstate", `what other modules may name of working state, and two of its resources`, "internal/workstate runtime schemas/tga"},
	{"runtime/workstate/hostdir", "", "internal/access internal/filelock internal/workstate schemas/tga"},
	{"runtime/workstate/sqlitefile", "", "internal/workstate schemas/tga"},
	{"internal/workstate", `what the agent holds, as a transaction around each call: slices, map, budget, files, host directory, SQLite`, "internal/clip keyspace runtime schemas/tga wal/chain"},
	{"internal/workstate/memfs", `a file system in memory, with which working state is tested`, "internal/workstate schemas/tga"},
	{"runtime/turn", `what other modules may name of turns; experimental`, "internal/turn internal/turn/message runtime"},
	{"internal/turn", `whole turns of an agent: journal, seven phases, strategies, delegation`, "internal/clip keyspace ledger runtime runtime/dispatch internal/turn/message internal/turn/state schemas/tga wal/chain"},
	{"internal/turn/message", `the one form of a message, filters, what of a conversation fits; keys with JSON values under four isolation levels`, "schemas/tga"},
	{"internal/turn/state", "", "keyspace runtime schemas/tga wal/chain"},
	{"internal/turn/model", `OpenAI and Anthropic over HTTP; tools from manifests, MCP and gRPC, schemas; OSSA manifests; spans, metrics, events, and an OpenTelemetry collector for them`, "internal/onwire internal/secretfile runtime/dispatch/httpcall internal/turn internal/turn/message schemas/tga"},
	{"internal/turn/tools", "", "internal/clip internal/mcpraw ledger runtime internal/turn internal/turn/state schemas/tga"},
	{"internal/turn/tools/grpccall", "", "internal/clip internal/mcpraw internal/onwire ledger runtime runtime/dispatch/httpcall schemas/tga"},
	{"internal/turn/manifest", "", "internal/turn internal/turn/message internal/turn/state schemas/tga"},
	{"internal/turn/emit", "", "internal/clip internal/turn schemas/tga"},
	{"internal/turn/otlp", "", "internal/turn/emit"},

	// The command and its parts.
	{"internal/access", "the lock of a directory that one process has; modes and owners of files; the file system of the operating system, as a store uses it. Nothing of tgad, so `engine` may use them", ""},
	{"internal/filelock", "", "internal/access"},
	{"internal/diskfs", "", "internal/access"},
	{"internal/listen", "listens at socket files; what of accept(2) passes; which hosts are this machine", "schemas/tga"},
	{"internal/secretfile", `files whose content is secret: who may have access, and the grammar of headers`, "internal/access"},
	{"internal/keyring", `the data keys that a store seals under, in a file outside of it`, "internal/access internal/clip internal/filelock internal/secretfile schemas/tga wal/chain"},
	{"internal/serial", `marks tests by what they take: some the race detector leaves out, some only make accept runs`, ""},
	{"internal/clip", `texts made fit to be shown: cut to a length, harmless, as a word of a shell`, ""},
	{"internal/clock", `the one rule by which time that passes is told: wall and monotonic clock, jumps`, ""},
	{"internal/mcpfront/call", "the table that tells a call without an idempotency key from a repeat of an earlier one; pure, so `runtime` may use it", ""},
	{"internal/mcpanswer", `what an answer of an MCP server to tools/call means for the record of the call`, "internal/clip internal/mcpraw ledger runtime schemas/tga"},
	{"internal/mcpfront/paper", `what an MCP shim leaves on its machine for others to see: slot, book, locks; raw frames and the ways to a tool server; whose a call is where Authorization is forwarded; what a client's configuration says; what tgad itself says in MCP; of a gateway, the names of tools and the identities of clients`, "internal/mcpraw schemas/tga"},
	{"internal/mcpfront/subject", "", "internal/access internal/listen schemas/tga"},
	{"internal/mcpfront/frames", "", "internal/mcpraw internal/onwire runtime/dispatch/httpcall schemas/tga"},
	{"internal/mcpfront/names", "", ""},
	{"internal/mcpfront/identity", "", "internal/access internal/secretfile schemas/tga"},
	{"internal/mcpfront/setup", "", "internal/clip schemas/tga"},
	{"internal/mcpfront/say", "", "internal/clip internal/mcpfront/frames internal/mcpraw runtime/client schemas/tga schemas/wire"},
	{"internal/workspace", `snapshots of a directory around calls of any client, and restores by a plan that was shown`, "internal/access internal/workstate runtime/workstate/hostdir schemas/tga"},
	{"internal/evidence/tree", "evidence: the Merkle tree over the log's order; signed checkpoints and places outside for them; bundles that an auditor checks offline, with programs that share no code with tgad; a monitor that follows a store from outside, and a witness that remembers for others; what keeps all that for an open store", "internal/access schemas/tga"},
	{"internal/evidence/checkpoint", "", "internal/access internal/secretfile schemas/tga internal/diskfs"},
	{"internal/evidence/witness", "", "internal/access internal/evidence/checkpoint internal/filelock internal/listen internal/secretfile schemas/tga"},
	{"internal/evidence/bundle", "", "internal/evidence/checkpoint internal/evidence/tree internal/ndjson schemas/tga wal/chain"},
	{"internal/evidence/verifiers", "", ""},
	{"internal/evidence/sends", "", "internal/evidence/tree ledger schemas/tga wal/chain"},
	{"internal/evidence/monitor", "", "internal/access internal/evidence/bundle internal/evidence/checkpoint internal/evidence/sends internal/evidence/tree internal/filelock schemas/tga wal/chain"},
	{"internal/evidence", "", "engine internal/access internal/evidence/bundle internal/evidence/checkpoint internal/evidence/tree runtime schemas/tga wal/chain internal/diskfs"},
	{"evidence", "signed checkpoints, receipts and evidence files for a program that embeds the store", "engine internal/evidence internal/evidence/checkpoint internal/ndjson runtime schemas/tga wal/chain"},
	{"internal/duty", "what one process of a store does at a time, with what it must remember of it", "internal/access internal/evidence/checkpoint"},
	{"internal/audit", "the log of a store in the forms that audit systems read, and delivered to them", "internal/clip runtime schemas/tga schemas/wire wal/chain"},
	{"internal/audit/deliver", "", "internal/access internal/audit internal/duty internal/secretfile schemas/tga"},
	{"internal/notice", "who is told of what waits for people, and what they were told", "internal/audit/deliver internal/clip internal/clock internal/config internal/duty schemas/tga"},
	{"internal/redact", `secrets out of arguments and answers, before they are stored`, "runtime schemas/tga"},
	{"internal/config", `the configuration, read and checked`, "internal/access internal/clip internal/listen internal/mcpfront/names internal/mcpfront/subject internal/outcome internal/redact internal/verify internal/verify/sqlcheck ledger runtime internal/capability runtime/dispatch/httpcall schemas/tga internal/backup/bucket"},
	{"internal/spans", `the spans of governed calls, by the API of OpenTelemetry`, "runtime schemas/tga"},
	{"internal/optional", `SQLite, PostgreSQL, gRPC and OTLP, which the build tag slim leaves out`, "internal/spans internal/turn/emit internal/turn/otlp internal/turn/tools internal/turn/tools/grpccall internal/verify/pgcheck internal/verify/sqlcheck internal/verify/sqlitecheck internal/workstate runtime runtime/workstate/sqlitefile schemas/tga internal/backup/bucket internal/backup/s3"},
	{"internal/assemble", `what the configuration describes, made: dispatcher, trust, models, outputs of events; links what any file could ask for`, "engine internal/search internal/search/sqlite internal/access internal/audit internal/audit/deliver internal/config internal/duty internal/filelock internal/keyring internal/notice internal/outcome internal/secretfile internal/turn/model internal/turn/tools internal/optional internal/redact internal/verify internal/verify/filecheck internal/verify/gitcheck internal/verify/github internal/verify/httpcheck internal/verify/mcpcheck internal/verify/sqlcheck internal/workspace ledger runtime internal/capability runtime/dispatch runtime/dispatch/httpcall runtime/mcp internal/turn internal/turn/emit schemas/tga wal/chain internal/evidence internal/evidence/checkpoint internal/spans internal/backup/bucket"},
	{"internal/backup", `a backup that is kept current beside the calls; what a backup consists of; a backup in a bucket, and the client of S3`, "engine internal/access internal/backup/bucket internal/backup/manifest schemas/tga"},
	{"internal/backup/bucket", "", "internal/access internal/backup/manifest schemas/tga"},
	{"internal/backup/s3", "", "internal/backup/bucket internal/secretfile internal/verify schemas/tga"},
	{"internal/retention", `how long what finished calls carried is kept: exported, then erased, by rules`, "engine internal/access internal/config internal/ndjson ledger schemas/tga wal/chain"},
	{"internal/search", `the index of lists: traces by what a list is asked for, a function of the log; where its rows lie is not its to say`, "ledger schemas/tga wal/chain"},
	{"internal/search/sqlite", `its rows in a SQLite database, beside the log of a store in a directory`, "internal/access internal/search schemas/tga wal/chain"},
	{"internal/search/searchtest", `the suite that every index of lists passes`, "internal/chaintest internal/search ledger runtime runtime/client schemas/tga schemas/wire wal/chain"},
	{"internal/aside", `what a directory has beside the store: snapshots of working states, and their end`, "internal/access keyspace schemas/tga wal/chain"},
	{"internal/daemon", `the socket server, the way to it within one process, and a daemon inside of another program`, "engine internal/search internal/access internal/aside internal/assemble internal/audit internal/audit/deliver internal/backup internal/clip internal/config internal/duty internal/filelock internal/keyring internal/listen internal/ndjson internal/notice internal/story ledger runtime schemas/tga schemas/wire wal/chain internal/evidence internal/retention internal/backup/bucket internal/travel"},
	{"internal/daemon/embed", "", "internal/access internal/assemble internal/config internal/daemon runtime/client schemas/tga"},
	{"internal/agent", `agents put together: store, tools, models, manifests, runner`, "engine internal/access internal/aside internal/assemble internal/config internal/keyring internal/optional internal/turn/manifest internal/turn/tools runtime internal/turn internal/turn/emit internal/workstate runtime/workstate/hostdir schemas/tga wal/chain"},
	{"internal/mcpfront", "`tgad mcp`: a client and its MCP server, and the client's calls governed on the way", "internal/access internal/clip internal/mcpanswer internal/mcpfront/asklog internal/mcpfront/attempt internal/mcpfront/entry internal/mcpfront/frames internal/mcpfront/handshake internal/mcpfront/owntask internal/mcpfront/owntool internal/mcpfront/paper internal/mcpfront/say internal/mcpfront/subject internal/mcpfront/toolcall internal/mcpfront/toolset internal/mcpfront/wait internal/mcpraw internal/workspace ledger runtime runtime/client schemas/tga"},
	{"internal/mcpfront/gateway", "`tgad gateway`: several tool servers behind one endpoint: identities, names, quotas, changes while clients are there", "internal/mcpfront internal/mcpfront/entry internal/mcpfront/frames internal/mcpfront/names internal/mcpfront/paper internal/mcpfront/say internal/mcpfront/subject internal/mcpfront/toolcall internal/mcpfront/toolset internal/mcpfront/wait internal/mcpraw schemas/tga"},
	{"internal/mcpfront/attempt", "the guarantee of an MCP front: an attempt brings a call from its begin to its end; a loop over a table", "internal/clip internal/mcpanswer internal/mcpfront/asklog internal/mcpfront/frames internal/mcpfront/paper internal/mcpfront/say internal/mcpfront/toolcall internal/mcpfront/wait internal/mcpraw internal/onwire internal/spans internal/story internal/workspace ledger runtime schemas/tga schemas/wire"},
	{"internal/mcpfront/entry", "where MCP clients come in: stdin and stdout, streamable HTTP, sessions", "internal/listen internal/mcpfront/frames internal/mcpfront/paper internal/mcpfront/say internal/mcpfront/subject internal/mcpfront/wait internal/mcpraw schemas/tga"},
	{"internal/mcpfront/toolcall", "a tools/call as it is read and as it is sent, and what people at the client are asked; the tools' definitions, pinned; tgad's own tasks, what they have come to and what is kept of them; tgad's own tools; what set a tool server up; how the front asks the log, and what it keeps there; how its goroutines wait", "internal/clip internal/mcpfront/frames internal/mcpfront/say internal/mcpraw internal/onwire runtime schemas/tga"},
	{"internal/mcpfront/handshake", "", "internal/mcpfront/frames internal/mcpraw"},
	{"internal/mcpfront/owntask", "", "internal/mcpfront/attempt internal/mcpfront/frames internal/mcpfront/say internal/mcpfront/toolcall internal/mcpfront/wait internal/mcpraw schemas/tga"},
	{"internal/mcpfront/owntool", "", "internal/clip internal/mcpfront/say internal/mcpfront/toolcall internal/story runtime runtime/client schemas/tga schemas/wire"},
	{"internal/mcpfront/toolset", "", "internal/mcpfront/asklog internal/mcpfront/frames internal/mcpraw ledger runtime schemas/tga"},
	{"internal/mcpfront/asklog", "", "internal/mcpfront/wait runtime schemas/tga schemas/wire"},
	{"internal/mcpfront/wait", "", ""},
	{"internal/story", "what a daemon says of a call, checked, and in words; the course of a call as a picture", "internal/clip ledger schemas/tga wal/chain schemas/wire"},
	{"internal/picture", "", "internal/clip internal/story schemas/tga"},
	{"internal/logfile", "segments, exports and evidence files, read as a daemon would answer", "internal/evidence/bundle internal/ndjson internal/segment internal/story schemas/tga wal/chain schemas/wire"},
	{"internal/report", "pages of one file that need nothing beside themselves, with tables and plots", "internal/clip"},
	{"internal/ui", "the web view: inbox, calls, turns, states, store, actions", "internal/clip internal/picture internal/promtext internal/story internal/turn internal/turn/message internal/workstate runtime runtime/client schemas/tga wal/chain schemas/wire internal/listen internal/report"},
	{"internal/top", "the frames of `tgad top`", "internal/clip internal/promtext schemas/tga schemas/wire"},
	{"internal/cli", "what verbs have in common: how they print and fail, how a trace reads as text; the verbs `serve`, `mcp`, `gateway`, `workspace`, and those of a program for a database", "engine internal/assemble internal/clip internal/config internal/daemon internal/daemon/embed internal/doctor internal/evidence internal/listen internal/logfile internal/mcpfront internal/mcpfront/entry internal/mcpfront/gateway internal/mcpfront/identity internal/mcpfront/names internal/mcpfront/say internal/mcpfront/setup internal/mcpfront/subject internal/mcpfront/toolcall internal/mcpfront/toolset internal/ndjson internal/secretfile internal/segment internal/story internal/turn internal/turn/manifest internal/workspace internal/workstate runtime runtime/client schemas/tga schemas/wire wal/chain"},
	{"internal/promtext", "numbers out of what a daemon says to Prometheus", ""},
	{"internal/doctor", "`tgad doctor`: what is wrong with the machine under a store and its daemon", "engine internal/access internal/promtext runtime/client schemas/tga"},
	{"cmd/tgad", `the command`, "engine internal/access internal/agent internal/assemble internal/audit internal/cli internal/config internal/keyring internal/daemon internal/daemon/embed internal/doctor ledger runtime internal/capability runtime/client internal/logfile internal/picture internal/story internal/top internal/ui internal/turn internal/turn/message internal/optional internal/workstate runtime/workstate/hostdir schemas/tga internal/evidence/bundle internal/evidence/checkpoint internal/evidence/monitor internal/evidence/sends internal/evidence/verifiers internal/evidence/witness internal/backup/bucket internal/travel schemas/wire internal/mcpfront/identity"},

	// What tests tgad. None of it is linked into the command.
	{"cmd/tgad-lab", "the program that `tgad demo` and `tgad torture` start", "internal/lab"},
	{"internal/lab", "", "internal/cli internal/crashtest internal/crashtest/suite internal/demo internal/killtest internal/killtest/adapter internal/killtest/engines internal/report schemas/tga"},
	{"internal/demo", `the demonstration; a language model's server that says what a script tells it`, "engine internal/payments/journal internal/payments/server internal/cli internal/modelserver internal/story runtime runtime/client internal/turn internal/workstate runtime/workstate/hostdir runtime/workstate/sqlitefile schemas/tga schemas/wire"},
	{"internal/modelserver", "", ""},
	{"internal/crashtest", `crashes in memory, on real processes and disks, their oracle and properties; random commands; planted bugs`, "internal/commit engine internal/crashtest/crashmem internal/evidence/sends internal/evidence/tree keyspace ledger runtime runtime/dispatch/httpcall internal/turn internal/turn/message internal/turn/state internal/workstate internal/workstate/memfs schemas/tga wal/chain internal/ndjson internal/segment"},
	{"internal/commit", "the commit that was measured or tried", ""},
	{"internal/crashtest/crashmem", "", ""},
	{"internal/crashtest/machine", "", "internal/crashtest ledger"},
	{"internal/crashtest/proc", "", "engine internal/crashtest internal/crashtest/crashmem ledger runtime schemas/tga wal/chain"},
	{"internal/crashtest/suite", "", "internal/crashtest internal/crashtest/machine internal/crashtest/proc"},
	{"internal/crashtest/torture", "", "internal/crashtest internal/crashtest/suite"},
	{"internal/planted", "", ""},
	{"internal/killtest", `the kill test for any engine: its protocol, the payment service that counts, what became of each call; tgad, an outbox and a loop as its adapters`, "internal/clip internal/killtest/adapter schemas/tga"},
	{"internal/killtest/adapter", "", ""},
	{"internal/killtest/engines", "", "engine internal/killtest/adapter ledger runtime runtime/dispatch/httpcall schemas/tga"},
	{"internal/memstore", "a `Store` in memory for tests; every order in which a few actors can meet", "keyspace ledger runtime schemas/tga wal/chain"},
	{"internal/interleave", "", ""},
	{"internal/testlog", "a log that a test reads while others write it", ""},
	{"internal/mcpfront/fronttest", "what the tests of the MCP front share: a log, a tool server with a journal, clients, processes to kill", "engine internal/assemble internal/daemon internal/daemon/embed internal/filelock internal/mcpfront/asklog internal/mcpfront/entry internal/mcpfront/frames internal/mcpfront/say internal/mcpraw internal/serial ledger runtime runtime/client schemas/tga schemas/wire"},
	{"internal/golden", `golden vectors and schemas where they lie, what the public Talos schemas ask of artifacts, an OpenTelemetry collector, for tests`, ""},
	{"internal/talostest", "", "internal/golden"},
	{"internal/browser", `Chromium without a window, for tests that look at pages`, "internal/serial"},
	{"internal/agent/otlptest", "", ""},
	{"internal/mutate", `finds changed operators that no test of their package notices`, ""},
	{"internal/lint", `the structure as tests: imports, documents made from tables`, ""},
	{"test_vectors", `golden vectors, for us and for other implementations`, ""},
	{"test_vectors/gen", "", "schemas/tga internal/vector"},
	{"examples/embed", `an embedder, clients in other languages, a payments tool server`, "engine runtime schemas/tga"},
	{"examples/clients", "", ""},
	{"examples/payments", "", "internal/payments/server"},
	{"internal/payments/journal", "", ""},
	{"internal/payments/server", "", "internal/payments/journal"},
	{"clients", `the clients in Python and TypeScript, their tests; what writes their messages and error classes`, ""},
	{"clients/gen", "", "schemas/tga schemas/wire"},
	{"fuzz", `fuzz targets; the measurements`, ""},
	{"bench", "", "internal/commit internal/report bench/internal/load bench/internal/measure engine internal/assemble internal/daemon ledger runtime internal/capability runtime/client runtime/dispatch/httpcall schemas/tga wal wal/chain internal/evidence internal/evidence/bundle internal/evidence/checkpoint internal/ndjson internal/ui internal/verify/sqlitecheck schemas/wire"},
	{"bench/internal/load", "", "bench/internal/measure engine runtime internal/turn internal/turn/message schemas/tga wal/chain"},
	{"bench/internal/measure", "", ""},
}

func TestEveryRoomHasItsImports(t *testing.T) {
	type arrow = [2]string
	drawn, found, known := map[arrow]bool{}, map[arrow]bool{}, map[string]bool{}
	for _, r := range rooms {
		if known[r.path] {
			t.Errorf("%s stands in the table twice", r.path)
		}
		known[r.path] = true
		for _, to := range strings.Fields(r.imports) {
			drawn[arrow{r.path, to}] = true
		}
	}
	slim := list(t, "-tags", "slim", "./internal/optional") // with this tag it has other imports
	for _, p := range list(t, "./...") {
		if p.ImportPath == slim[0].ImportPath {
			p.Imports = append(p.Imports, slim[0].Imports...)
		}
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		if !known[from] {
			t.Errorf("%s is not in the table", from)
		}
		delete(known, from)
		for _, imp := range p.Imports {
			to, ok := strings.CutPrefix(imp, module+"/")
			if !ok {
				continue
			}
			a := arrow{from, to}
			found[a] = true
			if !drawn[a] {
				t.Errorf("%s imports %s, an arrow that the table does not have", from, to)
			}
		}
	}
	for path := range known {
		t.Errorf("%s is in the table and not in the module", path)
	}
	for a := range drawn {
		if !found[a] {
			t.Errorf("the table has an arrow from %s to %s, which nothing needs", a[0], a[1])
		}
	}
}

// TestArchitectureListsTheRooms: the table in docs/ARCHITECTURE.md is made from rooms, and is up to date.
func TestArchitectureListsTheRooms(t *testing.T) {
	var b strings.Builder
	b.WriteString("| place | owns |\n|---|---|\n")
	for i := 0; i < len(rooms); {
		place, owns := "`"+rooms[i].path+"`", rooms[i].owns
		for i++; i < len(rooms) && rooms[i].owns == ""; i++ {
			place += ", `" + rooms[i].path + "`"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", place, owns)
	}
	const name, begin, end = "../../docs/ARCHITECTURE.md", "## Rooms\n\n", "\nThe import diagram"
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %q and %q", name, begin, end)
	}
	if *update {
		if err := os.WriteFile(name, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != b.String() {
		t.Errorf("%s does not list the rooms of the table: go test ./internal/lint -update", name)
	}
}
