// Command release makes what a release of tgad consists of, from the newest commit of the checkout that it is
// run in: binaries and archives, a .deb and a .rpm, an OCI image, an SBOM of each archive, the licences of all
// that is linked, checksums, provenance and a signature.
//
// # Invariants
//
//	same       the same commit and Go version make the same bytes, wherever they are built  [release.compare]  TestReleaseIsReproducible
//	committed  nothing but what is committed goes into a release                            [checkout]         TestReleaseIsOfTheCommit
//	linked     NOTICE and the SBOMs name the modules that the linker took, and no others    [modulesOf]        TestSBOMNamesWhatIsLinked
//	covered    SHA256SUMS has every other file, and is what is signed                       [release.seal]     TestSignatureCoversEveryFile
//	one key    what rpm imports is the key that signs SHA256SUMS, the same for each release [pgpOf]            TestPackageIsSigned
package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// release is one run.
type release struct {
	from    string // a directory of the checkout
	source  string // a clone of the commit
	stage   string // what goes into packages, for each target
	out     string // the files of the release
	targets []target
	key     string             // file of the key that signs; "" signs nothing
	once    bool               // do not build a second time
	signer  ed25519.PrivateKey // nil signs nothing
	pgp     *pgp               // the same key, as rpm knows it

	built   map[target][]program
	version string // as the linker wrote it into tgad: v1.2.3
	commit  string
	when    time.Time // of the commit: the time of every file
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := &release{from: "."}
	targets := flag.String("targets", allTargets, "systems to build for, with commas between")
	flag.StringVar(&r.out, "out", "../dist", "`directory` of the release: made anew")
	flag.StringVar(&r.key, "key", "", "`file` with an ed25519 key (PKCS #8, PEM) that signs")
	flag.BoolVar(&r.once, "once", false, "do not build everything a second time to compare")
	flag.Parse()
	err := r.run(ctx, *targets)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run(ctx context.Context, targets string) (err error) {
	if r.targets, err = parseTargets(targets); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if r.key != "" {
		if r.signer, err = readKey(r.key); err != nil {
			return err
		}
	}
	if err := emptied(r.out); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "tgad-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	r.source, r.stage = filepath.Join(scratch, "source"), filepath.Join(scratch, "stage")
	if err := checkout(ctx, r.from, r.source); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"build", r.build},
		{"build again, elsewhere and with nothing cached", func(ctx context.Context) error { return r.compare(ctx, scratch) }},
		{"manual pages and completions", r.pages},
		{"NOTICE", r.notice},
		{"public key", r.public},
		{"archives", r.archives},
		{"packages", r.packages},
		{"image", r.image},
		{"SBOM", r.sboms},
		{"checksums, provenance, signature", r.seal},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Printf("%-48s %5.1f s\n", step.what, time.Since(began).Seconds())
	}
	return r.list()
}

// emptied makes the directory of a release, or takes a former release out of it. One with anything else in it is
// refused.
func emptied(dir string) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return nil
	}
	sums, err := os.ReadFile(filepath.Join(dir, sumsName))
	if err != nil {
		return fmt.Errorf("%s has files that are of no release: %w", dir, err)
	}
	for _, f := range files {
		if name := f.Name(); name != sumsName && name != signatureName && !strings.Contains(string(sums), "  "+name+"\n") {
			return fmt.Errorf("%s has %s, which is of no release", dir, name)
		}
	}
	for _, f := range files {
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// list prints what there is now.
func (r *release) list() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	fmt.Printf("\ntgad %s, commit %s, in %s:\n", r.version, r.commit, r.out)
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return err
		}
		fmt.Printf("%12d  %s\n", info.Size(), f.Name())
	}
	return nil
}

// number is the version without its v, as packages and archives have it.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }
