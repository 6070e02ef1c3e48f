package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user of the image: a number, since Kubernetes compares it with runAsNonRoot.
const nobody = 65532

// image writes an OCI image of the Linux targets, as an archive of an OCI layout. Nothing is under it: tgad is
// static, and needs of a system only the certificates of authorities.
func (r *release) image(context.Context) error {
	dir, err := os.MkdirTemp("", "tgad-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	index := v1.ImageIndex(mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	for _, t := range r.targets {
		if t.os() != "linux" {
			continue
		}
		img, err := r.imageOf(t)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: t.os(), Architecture: t.arch()},
		}})
	}
	index = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.number()})); err != nil {
		return err
	}
	all := map[string]entry{}
	err = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		in, err := filepath.Rel(dir, name)
		all[filepath.ToSlash(in)] = entry{text, 0o644, 0}
		return err
	})
	if err != nil {
		return err
	}
	text, err := r.tarred(all)
	if err != nil {
		return err
	}
	return put(filepath.Join(r.out, "tgad-"+r.number()+"-oci.tar"), text)
}

func (r *release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    "tgad",
		"org.opencontainers.image.source":   "https://github.com/tgad/tgad",
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created":  r.when.UTC().Format("2006-01-02T15:04:05Z"),
	}
}

// imageOf makes the image of one target, with one layer.
func (r *release) imageOf(t target) (v1.Image, error) {
	var roots strings.Builder
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a file of certificates cannot say it
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	all := map[string]entry{
		"etc": {nil, 0o755, 0}, "etc/ssl": {nil, 0o755, 0}, "etc/ssl/certs": {nil, 0o755, 0},
		"usr": {nil, 0o755, 0}, "usr/bin": {nil, 0o755, 0}, "usr/share": {nil, 0o755, 0}, "usr/share/doc": {nil, 0o755, 0}, "usr/share/doc/tgad": {nil, 0o755, 0},
		"run": {nil, 0o755, 0}, "run/tgad": {nil, 0o750, nobody}, "var": {nil, 0o755, 0}, "var/lib": {nil, 0o755, 0}, "var/lib/tgad": {nil, 0o700, nobody},
		"tmp":        {nil, 0o1777, 0},
		"etc/passwd": {[]byte("root:x:0:0:root:/:/sbin/nologin\ntgad:x:65532:65532:tgad:/var/lib/tgad:/sbin/nologin\n"), 0o644, 0},
		"etc/group":  {[]byte("root:x:0:\ntgad:x:65532:\n"), 0o644, 0},

		"etc/ssl/certs/ca-certificates.crt": {[]byte(roots.String()), 0o644, 0},
	}
	for from, to := range map[string]string{filepath.Join(r.source, "LICENSE"): "LICENSE", filepath.Join(r.stage, t.String(), "NOTICE"): "NOTICE"} {
		text, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		all["usr/share/doc/tgad/"+to] = entry{text, 0o644, 0}
	}
	for _, p := range r.built[t] {
		if p.name == "tgad-lab" {
			continue // it tries tgad, on a machine where that may be done
		}
		text, err := os.ReadFile(p.path)
		if err != nil {
			return nil, err
		}
		all["usr/bin/"+p.name] = entry{text, 0o755, 0}
	}
	text, err := r.tarred(all)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.when}, CreatedBy: "make release"}}); err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = t.os(), t.arch(), v1.Time{Time: r.when}
	file.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/usr/bin/tgad"}, Cmd: []string{"--help"}, WorkingDir: "/",
		Env: []string{"PATH=/usr/bin"}, Labels: r.labels(),
	}
	return mutate.ConfigFile(img, file)
}
