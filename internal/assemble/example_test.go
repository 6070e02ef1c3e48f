package assemble

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const example = "../../examples/tgad.toml"

func TestExampleIsValid(t *testing.T) {
	c, err := Load(example)
	if err != nil {
		t.Fatal(err)
	}
	tools, err := Build(c, Options{Store: t.TempDir(), Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
	}()
	if len(tools.Router) != 4 || !tools.Trusts() {
		t.Errorf("the example gives %d dispatchers", len(tools.Router))
	}
}

// TestWholeExampleIsValid: the example is valid as it is, and also with the settings that need files, when
// these files exist.
func TestWholeExampleIsValid(t *testing.T) {
	raw, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Replace(raw, []byte("#:schema"), []byte("# :schema"), 1) // this line is for editors
	dir := t.TempDir()
	for _, name := range []string{"shop.password", "github.token", "HEAD"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("s3cret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "supervisor.jwks"), keySet(t), 0o600); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^#([^ \n])`).ReplaceAllString(string(raw), "$1")
	text = strings.NewReplacer("/etc/tgad/", dir+"/", "/srv/repos/site.git", dir).Replace(text)
	c, err := Parse(filepath.Join(dir, "tgad.toml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tools, err := Build(c, Options{Store: t.TempDir(), Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
	}()
	trust := tools.Options().Trust
	for _, kind := range []string{"invoice", "ticket", "file", "order", "shipment", "github_pr", "git_ref"} {
		if trust.Verifier(kind) == nil {
			t.Errorf("%s has no verifier", kind)
		}
	}
	if trust.Verifier("dream") != nil || trust.Capabilities == nil || trust.SelfApproval || trust.Supervisor("uid:2003") == nil || trust.Supervisor("uid:2004") != nil {
		t.Errorf("trust %+v", trust)
	}
	if trust.Prober("billing", "create_invoice") == nil || trust.Prober("billing", "balance") != nil || trust.Prober("crm", "add_contact") != nil {
		t.Error("probers are not those of the file")
	}
}

// TestHeadersFile: the headers of a file are used. A file that everybody can read, or that has a header
// twice, is refused, and the error does not repeat its content.
func TestHeadersFile(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct {
		text string
		mode os.FileMode
		ok   bool
	}{
		{"# secret\nAuthorization: Bearer s3cret\nx-a: 1:2\n", 0o600, true},
		{"Authorization: Bearer s3cret\n", 0o604, false},
		{"Authorization: Bearer s3cret\nauthorization: Bearer s3cret\n", 0o600, false},
		{"Bearer s3cret\n", 0o600, false},
	} {
		path := filepath.Join(dir, "headers")
		if err := os.WriteFile(path, []byte(x.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, x.mode); err != nil {
			t.Fatal(err)
		}
		c, err := Parse(filepath.Join(dir, "c.toml"), []byte("[[server]]\nid = \"s\"\ntype = \"http\"\nurl = \"http://h\"\nheaders_file = \"headers\"\n"))
		if err != nil {
			t.Fatal(err)
		}
		headers, err := headers(c, &c.Servers[0])
		if (err == nil) != x.ok || err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q %v: %v", x.text, x.mode, err)
		}
		if x.ok && (headers["Authorization"] != "Bearer s3cret" || headers["X-A"] != "1:2") {
			t.Errorf("headers %v", headers)
		}
	}
}
