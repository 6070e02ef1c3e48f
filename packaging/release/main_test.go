package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	attestation "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
)

// made is the release that the tests look at: of the newest commit, for this machine, signed.
var made struct {
	r        *release
	key      string // file
	unpacked string // the archive's directory
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := withRelease(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func host() string { return "linux/" + runtime.GOARCH }

func withRelease(tests func() int) (int, error) {
	dir, err := os.MkdirTemp("", "tgad-packaging-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	made.key = filepath.Join(dir, "key.pem")
	if out, err := exec.Command("openssl", "genpkey", "-algorithm", "ed25519", "-out", made.key).CombinedOutput(); err != nil {
		return 1, fmt.Errorf("openssl: %w\n%s", err, out)
	}
	// TGAD_ONCE spares the second build, which compiles everything anew.
	made.r = &release{from: ".", out: filepath.Join(dir, "dist"), key: made.key, once: os.Getenv("TGAD_ONCE") != ""}
	if err := made.r.run(context.Background(), host()); err != nil {
		return 1, err
	}
	if out, err := exec.Command("tar", "-C", dir, "-xzf", made.r.file(".tar.gz")).CombinedOutput(); err != nil {
		return 1, fmt.Errorf("the archive: %w\n%s", err, out)
	}
	made.unpacked = filepath.Join(dir, made.r.name(target(host())))
	return tests(), nil
}

// file is the file of the release whose name ends so.
func (r *release) file(suffix string) string {
	all, err := filepath.Glob(filepath.Join(r.out, "*"+suffix))
	if err != nil || len(all) != 1 {
		panic(fmt.Sprint(suffix, all, err))
	}
	return all[0]
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// another makes a release from a clone of this checkout, after prepare did something in it.
func another(t *testing.T, prepare func(clone string)) *release {
	t.Helper()
	dir := t.TempDir()
	clone := filepath.Join(dir, "clone")
	run(t, "git", "clone", "-q", "--shared", strings.TrimSpace(run(t, "git", "rev-parse", "--show-toplevel")), clone)
	run(t, "git", "-C", clone, "checkout", "-q", made.r.commit)
	prepare(clone)
	r := &release{from: clone, out: filepath.Join(dir, "dist"), key: made.key, once: true}
	if err := r.run(t.Context(), host()); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestReleaseIsReproducible: the same commit makes the same files, signature and all, from another checkout. That
// the compiler did not just remember is compared by the release itself.
func TestReleaseIsReproducible(t *testing.T) {
	again := another(t, func(string) {})
	if a, b := read(t, filepath.Join(made.r.out, sumsName)), read(t, filepath.Join(again.out, sumsName)); a != b {
		t.Errorf("two releases of one commit:\n%s\n%s", a, b)
	}
	if read(t, filepath.Join(made.r.out, signatureName)) != read(t, filepath.Join(again.out, signatureName)) {
		t.Error("the signatures differ")
	}
	a := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(a, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sameBytes(a, made.key); err == nil {
		t.Error("two programs that differ are taken for the same")
	}
}

// TestReleaseIsOfTheCommit: what is not committed is in no file of the release.
func TestReleaseIsOfTheCommit(t *testing.T) {
	dir := t.TempDir()
	clone, to := filepath.Join(dir, "clone"), filepath.Join(dir, "source")
	run(t, "git", "clone", "-q", "--shared", strings.TrimSpace(run(t, "git", "rev-parse", "--show-toplevel")), clone)
	for _, name := range []string{"README.md", "cmd/tgad/new.go"} {
		if err := os.WriteFile(filepath.Join(clone, name), []byte("package main\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkout(t.Context(), clone, to); err != nil {
		t.Fatal(err)
	}
	if status := run(t, "git", "-C", to, "status", "--porcelain"); status != "" {
		t.Errorf("the release's source is not the commit:\n%s", status)
	}
	if _, err := os.Stat(filepath.Join(to, "cmd/tgad/new.go")); err == nil {
		t.Error("a file that nobody committed is in the release's source")
	}
}

// TestReleaseTakesNoFilesOfOthersAway: the directory of a release is made anew only if it has one.
func TestReleaseTakesNoFilesOfOthersAway(t *testing.T) {
	dir := t.TempDir()
	if err := emptied(dir); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{sumsName: "00  a.tar.gz\n", "a.tar.gz": "", signatureName: ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mine := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := emptied(dir); err == nil {
		t.Error("a directory with a file of no release was emptied")
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if err := emptied(dir); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%v, %v are left of the former release", files, err)
	}
}

// TestProgramsSayWhatTheyAre: each is static, and tgad names the version that its archive has.
func TestProgramsSayWhatTheyAre(t *testing.T) {
	for _, name := range []string{"tgad", "tgad-lab", "tgad-postgres"} {
		path := filepath.Join(made.unpacked, name)
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s needs a dynamic linker", name)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if raw := read(t, path); strings.Contains(raw, made.r.source) {
			t.Errorf("%s has a path of the machine that built it", name)
		}
	}
	said := run(t, filepath.Join(made.unpacked, "tgad"), "version")
	if want := "tgad " + made.r.version + " " + made.r.commit[:12] + " go1."; !strings.HasPrefix(said, want) {
		t.Errorf("tgad version says %q, want %q", said, want)
	}
	for _, line := range []string{"\npebble v2.", " Store "} {
		if !strings.Contains(said, line) {
			t.Errorf("tgad version does not say %q:\n%s", line, said)
		}
	}
}

// TestSBOMNamesWhatIsLinked compares the SBOM and NOTICE with what the programs themselves say.
func TestSBOMNamesWhatIsLinked(t *testing.T) {
	var bom struct {
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal([]byte(read(t, made.r.file(".cdx.json"))), &bom); err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, c := range bom.Components {
		if c.Purl != "pkg:golang/"+c.Name+"@"+c.Version {
			t.Errorf("%s has the address %s", c.Name, c.Purl)
		}
		said[c.Name+" "+c.Version] = true
	}
	notice := read(t, filepath.Join(made.unpacked, "NOTICE"))
	if notice != read(t, filepath.Join(made.r.out, "NOTICE")) {
		t.Error("the archive has another NOTICE than the release")
	}
	linked := map[string]bool{"std " + strings.TrimPrefix(runtime.Version(), "go"): true}
	for _, name := range []string{"tgad", "tgad-lab", "tgad-postgres"} {
		info, err := buildinfo.ReadFile(filepath.Join(made.unpacked, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range info.Deps {
			if !strings.HasPrefix(m.Path+"/", "github.com/tgad/tgad/") {
				linked[m.Path+" "+m.Version] = true
			}
		}
	}
	for m := range linked {
		if !said[m] {
			t.Errorf("%s is linked, and the SBOM does not say so", m)
		}
		if !strings.HasPrefix(m, "std ") && !strings.Contains(notice, "\n"+m+"\n") {
			t.Errorf("%s is linked, and NOTICE does not have it", m)
		}
	}
	for m := range said {
		if !linked[m] {
			t.Errorf("the SBOM says %s, which is not linked", m)
		}
	}
	for _, text := range []string{"github.com/cockroachdb/pebble/v2 v", "Redistributions in binary form", "Apache License", "Permission is hereby granted, free of charge"} {
		if !strings.Contains(notice, text) {
			t.Errorf("NOTICE does not have %q", text)
		}
	}
}

// TestSignatureCoversEveryFile checks with openssl and sha256sum, as somebody would who has neither Go nor tgad.
func TestSignatureCoversEveryFile(t *testing.T) {
	verify := []string{"pkeyutl", "-verify", "-pubin", "-inkey", filepath.Join(made.r.out, keyName), "-rawin", "-sigfile", filepath.Join(made.r.out, signatureName), "-in"}
	run(t, "openssl", append(verify, filepath.Join(made.r.out, sumsName))...)
	sums := read(t, filepath.Join(made.r.out, sumsName))
	changed := filepath.Join(t.TempDir(), "sums")
	if err := os.WriteFile(changed, []byte(strings.Replace(sums, "a", "b", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("openssl", append(verify, changed)...).Run(); err == nil {
		t.Error("other sums have the same signature")
	}
	run(t, "sh", "-c", "cd "+made.r.out+" && sha256sum --strict -c "+sumsName)
	files, err := os.ReadDir(made.r.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := f.Name(); name != sumsName && name != signatureName && !strings.Contains(sums, "  "+name+"\n") {
			t.Errorf("%s is in no sum", name)
		}
	}
}

// TestProvenanceNamesTheCommit: its envelope is signed, and its subjects are the files with their digests.
func TestProvenanceNamesTheCommit(t *testing.T) {
	raw := read(t, made.r.file("provenance.dsse.json"))
	var envelope dsse.Envelope
	if err := json.Unmarshal([]byte(raw), &envelope); err != nil {
		t.Fatal(err)
	}
	key, err := readKey(made.key)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := dsse.NewEnvelopeVerifier(signing(key))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verifier.Verify(t.Context(), &envelope); err != nil {
		t.Error(err)
	}
	payload, err := base64.StdEncoding.DecodeString(envelope.Payload)
	if err != nil {
		t.Fatal(err)
	}
	forged := envelope
	forged.Payload = base64.StdEncoding.EncodeToString(bytes.Replace(payload, []byte(made.r.commit), bytes.Repeat([]byte("0"), 40), 1))
	if _, err := verifier.Verify(t.Context(), &forged); err == nil || forged.Payload == envelope.Payload {
		t.Error("a statement about another commit has the same signature")
	}
	var statement attestation.Statement
	if err := protojson.Unmarshal(payload, &statement); err != nil {
		t.Fatal(err)
	}
	if err := statement.Validate(); err != nil {
		t.Error(err)
	}
	sums := read(t, filepath.Join(made.r.out, sumsName))
	for _, s := range statement.GetSubject() {
		if !strings.Contains(sums, s.GetDigest()["sha256"]+"  "+s.GetName()+"\n") {
			t.Errorf("%s has another digest in the provenance", s.GetName())
		}
	}
	if n := len(statement.GetSubject()); n != strings.Count(sums, "\n")-1 {
		t.Errorf("%d subjects, of %d files with the provenance itself", n, strings.Count(sums, "\n"))
	}
	for _, want := range []string{made.r.commit, runtime.Version(), "https://slsa.dev/provenance/v1", host()} {
		if !strings.Contains(string(payload), want) {
			t.Errorf("the provenance does not say %s", want)
		}
	}
}
