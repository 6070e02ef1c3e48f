package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// linked is a module that is linked.
type linked struct{ path, version, sum string }

// modulesOf returns what the linker took of others into programs, sorted. Those of this repository are tgad.
func modulesOf(programs []program) []linked {
	all := map[linked]bool{}
	for _, p := range programs {
		for _, m := range p.info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			if m.Path != "github.com/tgad/tgad" && !strings.HasPrefix(m.Path, "github.com/tgad/tgad/") {
				all[linked{m.Path, m.Version, m.Sum}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b linked) int {
		return strings.Compare(a.path+"@"+a.version, b.path+"@"+b.version)
	})
}

// legal are the names of files that say under what a module may be used.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright)`)

// notice writes NOTICE: every module that is linked into any program, with its licence. A text that several
// modules have stands once.
func (r *release) notice(ctx context.Context) error {
	var all []program
	for _, t := range r.targets {
		all = append(all, r.built[t]...)
	}
	dirs := map[string]string{}
	for _, dir := range []string{".", "engine/postgres"} {
		if err := moduleDirs(ctx, filepath.Join(r.source, dir), dirs); err != nil {
			return err
		}
	}
	of, order := map[string][]string{}, []string{}
	add := func(name, text string) {
		if of[text] == nil {
			order = append(order, text)
		}
		of[text] = append(of[text], name)
	}
	root, err := output(ctx, ".", nil, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	standard, err := legalText(root)
	if err != nil {
		return err
	}
	add("Go's standard library, "+all[0].info.GoVersion, standard)
	for _, m := range modulesOf(all) {
		dir := dirs[m.path+"@"+m.version]
		text, err := legalText(dir)
		if err != nil {
			return fmt.Errorf("%s@%s: %w", m.path, m.version, err)
		}
		add(m.path+" "+m.version, text)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "tgad %s\n\ntgad is under the Apache License 2.0 (see LICENSE). Its programs contain the following works of others.\n", r.version)
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(of[text], "\n"), strings.Repeat("-", 80), text)
	}
	for _, t := range r.targets {
		if err := put(filepath.Join(r.stage, t.String(), "NOTICE"), []byte(b.String())); err != nil {
			return err
		}
	}
	return put(filepath.Join(r.out, "NOTICE"), []byte(b.String()))
}

// moduleDirs finds where the modules of a build lie.
func moduleDirs(ctx context.Context, dir string, dirs map[string]string) error {
	out, err := output(ctx, dir, []string{"GOFLAGS="}, "go", "list", "-m", "-json=Path,Version,Dir,Replace", "all")
	if err != nil {
		return err
	}
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var m struct {
			Path, Version, Dir string
			Replace            *struct{ Path, Version, Dir string }
		}
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.Replace != nil {
			m.Path, m.Version, m.Dir = m.Replace.Path, m.Replace.Version, m.Replace.Dir
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
}

// legalText is what the files of a module say of its licence.
func legalText(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("the module is not there")
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, f := range files {
		if f.IsDir() || !legal.MatchString(f.Name()) || strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return "", err
		}
		texts = append(texts, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
	}
	if len(texts) == 0 {
		return "", fmt.Errorf("no licence in %s", filepath.Base(dir))
	}
	return strings.Join(texts, "\n\n"), nil
}

// sboms writes what is in each archive, as CycloneDX.
func (r *release) sboms(context.Context) error {
	for _, t := range r.targets {
		bom := cyclonedx.NewBOM()
		bom.Metadata = &cyclonedx.Metadata{
			Timestamp: r.when.UTC().Format("2006-01-02T15:04:05Z"),
			Component: &cyclonedx.Component{
				BOMRef: "tgad", Type: cyclonedx.ComponentTypeApplication, Name: "tgad", Version: r.version,
				PackageURL: "pkg:golang/github.com/tgad/tgad@" + r.version,
				Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
			},
		}
		parts := []cyclonedx.Component{{
			BOMRef: "pkg:golang/std@" + runtimeVersion(r.built[t]), Type: cyclonedx.ComponentTypeLibrary, Name: "std",
			Version: runtimeVersion(r.built[t]), PackageURL: "pkg:golang/std@" + runtimeVersion(r.built[t]),
		}}
		for _, m := range modulesOf(r.built[t]) {
			url := "pkg:golang/" + m.path + "@" + m.version
			parts = append(parts, cyclonedx.Component{
				BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: m.path, Version: m.version, PackageURL: url,
				Properties: &[]cyclonedx.Property{{Name: "go:sum", Value: m.sum}},
			})
		}
		bom.Components = &parts
		needs := make([]string, len(parts))
		for i, p := range parts {
			needs[i] = p.BOMRef
		}
		bom.Dependencies = &[]cyclonedx.Dependency{{Ref: "tgad", Dependencies: &needs}}
		var b strings.Builder
		if err := cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
			return err
		}
		if err := put(filepath.Join(r.out, r.name(t)+".cdx.json"), []byte(b.String())); err != nil {
			return err
		}
	}
	return nil
}

// runtimeVersion is Go's, as a version of its standard library: 1.26.0.
func runtimeVersion(programs []program) string {
	if len(programs) == 0 {
		return strings.TrimPrefix(runtime.Version(), "go")
	}
	version, _, _ := strings.Cut(programs[0].info.GoVersion, " ")
	return strings.TrimPrefix(version, "go")
}
