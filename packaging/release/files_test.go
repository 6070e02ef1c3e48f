package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
)

// TestManualPagesAndCompletionsRead: each verb has a page that man reads without complaint, and each shell can
// read its completions.
func TestManualPagesAndCompletionsRead(t *testing.T) {
	man := filepath.Join(made.unpacked, "man")
	var tree verb
	if err := json.Unmarshal([]byte(run(t, filepath.Join(made.unpacked, "tgad"), "commands")), &tree); err != nil {
		t.Fatal(err)
	}
	pages := 0
	var look func(v verb, name string)
	look = func(v verb, name string) {
		path := filepath.Join(man, name+".1.gz")
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
			return
		}
		pages++
		// Of its levels, error is where a reader would lose something.
		if out, err := exec.Command("mandoc", "-T", "lint", "-W", "error", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		text := run(t, "sh", "-c", "MANWIDTH=200 man -l "+path+" | col -b")
		for _, f := range append(v.Flags, v.Shared...) {
			if !strings.Contains(text, "--"+f.Name) {
				t.Errorf("%s does not have --%s", name, f.Name)
			}
		}
		for _, sub := range v.Verbs {
			word, _, _ := strings.Cut(sub.Use, " ")
			look(sub, name+"-"+word)
		}
	}
	look(tree, "tgad")
	if pages < 60 {
		t.Errorf("only %d pages", pages)
	}
	for _, page := range []string{"tgad-postgres-pg-migrate", "tgad-lab-demo"} {
		if _, err := os.Stat(filepath.Join(man, page+".1.gz")); err != nil {
			t.Error(err)
		}
	}
	serve := run(t, "sh", "-c", "MANWIDTH=100 man -l "+filepath.Join(man, "tgad-serve.1.gz")+" | col -b")
	for _, want := range []string{"TGAD-SERVE(1)", "--lock-wait", `"/run/tgad/tgad.sock"`, "postgres://"} {
		if !strings.Contains(serve, want) {
			t.Errorf("tgad-serve.1 does not say %s:\n%s", want, serve)
		}
	}
	for shell, file := range completions {
		run(t, shell, "-n", filepath.Join(made.unpacked, "completions", file))
	}
}

// TestPackagesPassTheirLinter: lintian finds no error in the .deb, and rpm lists the same files.
func TestPackagesPassTheirLinter(t *testing.T) {
	out := run(t, "lintian", "--allow-root", "--fail-on", "none", made.r.file(".deb"))
	for line := range strings.Lines(out) {
		// The programs are static because they are to run everywhere, which is lintian's error.
		if strings.HasPrefix(line, "E:") && !strings.Contains(line, "statically-linked-binary") {
			t.Error(line)
		}
	}
	files := func(list string) map[string]bool {
		all := map[string]bool{}
		for line := range strings.Lines(list) {
			name := strings.TrimSpace(line)
			if i := strings.LastIndex(name, "./"); i >= 0 {
				name = name[i+1:]
			}
			if !strings.HasSuffix(name, "/") && !strings.HasPrefix(name, "/usr/share/doc/tgad/c") && !strings.HasPrefix(name, "/usr/share/licenses") {
				all[name] = true
			}
		}
		return all
	}
	deb, rpm := files(run(t, "dpkg-deb", "-c", made.r.file(".deb"))), files(run(t, "rpm", "-qlp", made.r.file(".rpm")))
	for name := range deb {
		if !rpm[name] {
			t.Errorf("the .rpm does not have %s", name)
		}
	}
	if len(deb) != len(rpm) || len(deb) < 90 {
		t.Errorf("%d files in the .deb, %d in the .rpm", len(deb), len(rpm))
	}
}

// TestImageRuns unpacks the OCI image with a tool of others, and runs the daemon in it as the image's user.
func TestImageRuns(t *testing.T) {
	dir := t.TempDir()
	oci := filepath.Join(dir, "oci")
	run(t, "sh", "-c", "mkdir "+oci+" && tar -C "+oci+" -xf "+made.r.file("-oci.tar"))
	var image struct {
		Architecture, Os string
		Labels           map[string]string
	}
	if err := json.Unmarshal([]byte(run(t, "skopeo", "inspect", "oci:"+oci+":"+made.r.number())), &image); err != nil {
		t.Fatal(err)
	}
	if image.Labels["org.opencontainers.image.revision"] != made.r.commit || image.Labels["org.opencontainers.image.version"] != made.r.version || image.Os != "linux" {
		t.Errorf("the image says %+v", image)
	}
	// umoci takes an image, not an index.
	run(t, "skopeo", "copy", "-q", "oci:"+oci+":"+made.r.number(), "oci:"+filepath.Join(dir, "one")+":x")
	run(t, "umoci", "unpack", "--image", filepath.Join(dir, "one")+":x", filepath.Join(dir, "bundle"))
	root := filepath.Join(dir, "bundle", "rootfs")
	var config struct {
		Process struct {
			User struct{ UID, GID int }
			Args []string
		}
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "bundle", "config.json"))), &config); err != nil {
		t.Fatal(err)
	}
	if config.Process.User.UID != nobody || config.Process.User.GID != nobody || strings.Join(config.Process.Args, " ") != "/usr/bin/tgad --help" {
		t.Errorf("the image runs %+v", config.Process)
	}
	in := func(args ...string) string {
		return run(t, "chroot", append([]string{"--userspec=65532:65532", root}, args...)...)
	}
	if said := in("/usr/bin/tgad", "--version"); !strings.Contains(said, made.r.version) {
		t.Errorf("the program in the image says %s", said)
	}
	// The directory of the store is there and empty, as a volume is.
	if said := in("/usr/bin/tgad", "init", "--data", "/var/lib/tgad"); !strings.HasPrefix(said, "new store ") {
		t.Errorf("init says %s", said)
	}
	in("/usr/bin/tgad", "verify", "/var/lib/tgad")
	if roots := read(t, filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")); strings.Count(roots, "BEGIN CERTIFICATE") < 80 {
		t.Errorf("only %d authorities", strings.Count(roots, "BEGIN CERTIFICATE"))
	}
}

// TestPackageIsSigned: rpm finds the signature good with the published key, of the commit's time, and not without that
// key, with another one, or after a byte was changed.
func TestPackageIsSigned(t *testing.T) {
	db := func(key string) []string {
		dir := "--dbpath=" + t.TempDir()
		run(t, "rpmkeys", dir, "--import", key)
		return []string{dir, "--checksig", "--verbose"}
	}
	ours := db(filepath.Join(made.r.out, pgpKeyName))
	said := run(t, "rpmkeys", append(ours, made.r.file(".rpm"))...)
	want := "Header V4 EdDSA/SHA256 Signature, key ID " + strings.ToLower(made.r.pgp.entity.PrimaryKey.KeyIdString()[8:])
	if !strings.Contains(said, want) {
		t.Errorf("rpm says\n%swant %q", said, want)
	}
	raw := []byte(read(t, made.r.file(".rpm")))
	raw[len(raw)-100]++
	changed := filepath.Join(t.TempDir(), "changed.rpm")
	if err := os.WriteFile(changed, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("rpmkeys", append(ours, changed)...).CombinedOutput(); err == nil {
		t.Errorf("a changed package passes:\n%s", out)
	}
	_, another, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := pgpOf(another, made.r.when)
	if err != nil {
		t.Fatal(err)
	}
	text, err := other.public()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "other.asc")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("rpmkeys", append(db(file), made.r.file(".rpm"))...).CombinedOutput(); err == nil {
		t.Errorf("a package passes with a key that is not its own:\n%s", out)
	}
	// A number of OpenPGP has no zeros before it, which one key in 256 has.
	for range 600 {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := pgpOf(key, made.r.when)
		if err != nil {
			t.Fatalf("%x: %v", key.Seed(), err)
		}
		if !p.entity.PrimaryKey.CreationTime.Equal(pgpBorn) {
			t.Fatalf("the key is of %v", p.entity.PrimaryKey.CreationTime)
		}
		sig, err := p.sign(strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openpgp.CheckDetachedSignature(openpgp.EntityList{p.entity}, strings.NewReader("x"), bytes.NewReader(sig), p.config()); err != nil {
			t.Fatalf("%x: %v", key.Seed(), err)
		}
	}
}
