package lint

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/config"
)

const configHead = `# Configuration

This page lists every key of the file that ` + "`tgad serve --config FILE`" + ` reads. It is made from the table
that tgad itself has (` + "`internal/config/keys.go`" + `); a test fails when a key is missing here, or when a default
is not what the code does. ` + "[examples/tgad.toml](../examples/tgad.toml)" + ` shows the keys in use.

The file is TOML, and everything in it is optional. With an empty file there is no tool server and every
request is denied. A key that does not exist is an error, which names the line, the column and the key that
was probably meant. Durations are texts such as "250ms", "30s" or "24h"; sizes are integers, or texts such as
"16MiB". Relative paths start at the directory of the file.
A 0 where a key's text gives it no meaning counts as if the key were absent: the default holds, ` + "`tgad config check`" + ` warns and
` + "`tgad config show`" + ` shows the default (` + "`TestZeroThatSaysNothingIsShownAsWhatHolds`" + `).
An empty text or list is refused where the absence of the key means all, for example ` + "`tool = \"\"`" + ` in a ` + "`[[rule]]`" + `
(` + "`TestEmptyIsNotEverything`" + `).

` + "```" + `
tgad init --data DIR --config FILE       a new store, and a new configuration with comments
tgad config check FILE                   errors, and what is allowed but unwise
tgad config show --origin FILE           every value that holds, and where it comes from; no secrets
tgad config schema                       a JSON Schema for editors
` + "```" + `

An editor with a TOML language server (Taplo, or Even Better TOML for VS Code) completes and checks the file
if the schema lies beside it and the first line is ` + "`#:schema ./config.schema.json`" + `. The schema is
[schemas/config.schema.json](../schemas/config.schema.json). It checks each key alone; ` + "`tgad config check`" + ` also
checks what several keys say together.

The column *reload* says what a running daemon does with a changed key when it reads the file again
([OPERATIONS.md](OPERATIONS.md#a-new-configuration)). *applies*: new calls take the new value. *restart*: the new
file is refused as a whole, and the error names the key. *not read*: the daemon has no use for the key. Behind
*gateway* and *mcp* stands what a running ` + "`tgad gateway`" + ` and ` + "`tgad mcp`" + ` do with the key on SIGHUP, where that is
something else; what they have no use for they do not read, unless the log is their own: then the daemon in them does
what the column says.
`

// TestConfigDocument: docs/CONFIG.md and the schema for editors are made from the table of package
// config, and are up to date.
func TestConfigDocument(t *testing.T) {
	raw, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"docs/CONFIG.md": configPage(config.Keys()), "schemas/config.schema.json": string(raw)} {
		if *update {
			if err := os.WriteFile("../../"+name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile("../../" + name); err != nil || string(got) != want {
			t.Errorf("%s is not what the table says (%v): go test ./internal/lint -run TestConfigDocument -update", name, err)
		}
	}
}

func configPage(keys []config.KeyDoc) string {
	var b strings.Builder
	b.WriteString(configHead)
	b.WriteString("\n## Keys above all tables\n")
	head := "\n| key | value | default | reload | meaning |\n|---|---|---|---|---|\n"
	b.WriteString(head)
	var tables []config.KeyDoc
	for _, k := range keys {
		switch {
		case strings.Contains(k.Path, "."):
		case k.IsTable():
			tables = append(tables, k)
		default:
			b.WriteString(configRow(k, k.Path))
		}
	}
	for _, table := range tables {
		title := "[" + table.Path + "]"
		if table.Form == config.FormTables {
			title = "[" + title + "]"
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n%s", title, table.Text, head)
		for _, k := range keys {
			if name, ok := strings.CutPrefix(k.Path, table.Path+"."); ok {
				b.WriteString(configRow(k, name))
			}
		}
	}
	return b.String()
}

func configRow(k config.KeyDoc, name string) string {
	form, preset, text := k.Form, k.Default, k.Text
	if k.Words != nil {
		form = "`" + strings.Join(k.Words, "`, `") + "`"
		if k.Form == config.FormStrings {
			form = "list of " + form
		}
	}
	switch {
	case k.Needed:
		preset = "(required)"
	case preset != "" && !strings.Contains(preset, " "):
		preset = "`" + preset + "`"
	}
	if k.Types != nil {
		text = "(" + strings.Join(k.Types, ", ") + ") " + text
	}
	reload := k.Reload
	for _, of := range []struct {
		reader config.Reader
		name   string
	}{{config.Behind, "gateway"}, {config.Shim, "mcp"}} {
		if word := config.ReloadOf(of.reader, k.Path); word != config.ReloadUnread && word != k.Reload {
			reload += "; " + of.name + ": " + word
		}
	}
	if k.IsTable() {
		reload = ""
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", name, form, preset, reload, strings.ReplaceAll(text, "|", `\|`))
}
