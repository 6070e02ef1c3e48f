package crashtest

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Bug is a bug planted in the code under test, as a patch of the sources. A separate build
// contains it (see [Planted]), so the code itself has no hooks. The lines that the patch
// adds are conditional on planted.On(Name).
type Bug struct {
	Name    string // the file's, without .patch
	FoundBy string // the part of the tier kill that finds it soonest; "" for single
	hunks   []hunk
}

// hunk is one change of a file: lines with the mark of a patch, ' ', '-' or '+'.
type hunk struct {
	file  string // from the module's root
	lines []string
}

// old returns the lines that the hunk replaces.
func (h hunk) old() (lines []string) {
	for _, l := range h.lines {
		if l[0] != '+' {
			lines = append(lines, l[1:])
		}
	}
	return lines
}

//go:embed testdata/planted
var planted embed.FS

// PlantedBugs returns the bugs that the tiers must find.
var PlantedBugs = sync.OnceValues(func() ([]Bug, error) { return ReadBugs(planted, "testdata/planted") })

// ReadBugs reads the patches of a folder: unified diffs, each after a text that describes
// the bug.
func ReadBugs(fsys fs.FS, dir string) ([]Bug, error) {
	files, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	var bugs []Bug
	for _, f := range files {
		b, err := fs.ReadFile(fsys, path.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		bug, err := parseBug(string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		bug.Name = strings.TrimSuffix(f.Name(), ".patch")
		bugs = append(bugs, bug)
	}
	return bugs, nil
}

func parseBug(text string) (bug Bug, err error) {
	file := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch last := len(bug.hunks) - 1; {
		case strings.HasPrefix(line, "diff --git "): // as git writes it, with an index line
			file = ""
		case strings.HasPrefix(line, "--- "):
		case strings.HasPrefix(line, "+++ b/"):
			file = line[len("+++ b/"):]
		case strings.HasPrefix(line, "@@ ") && file != "":
			bug.hunks = append(bug.hunks, hunk{file: file})
		case file == "":
			if by, ok := strings.CutPrefix(line, "Found-by: "); ok {
				bug.FoundBy = by
			}
		case last >= 0 && line != "" && strings.ContainsRune(" -+", rune(line[0])):
			bug.hunks[last].lines = append(bug.hunks[last].lines, line)
		default:
			return bug, fmt.Errorf("line %q is no part of a patch", line)
		}
	}
	if len(bug.hunks) == 0 {
		return bug, fmt.Errorf("it changes nothing")
	}
	return bug, nil
}

// HavePlaces returns an error if a bug no longer fits the sources.
func HavePlaces(bugs []Bug) error {
	base, err := moduleDir()
	if err != nil {
		return err
	}
	_, err = plant(base, bugs)
	return err
}

// source is a file in which bugs are planted.
type source struct {
	lines []string
	gone  map[int]string   // lines that a bug takes out, with its name
	new   map[int][]string // what comes before a line
}

var packageClause = regexp.MustCompile(`(?m)^package \w+\n`)

// plant writes all bugs into the sources at once. Each hunk is searched in the original
// sources, so a bug may be in the context of another. If a hunk does not fit in exactly one
// place, that is an error: the code has changed and the patch must follow.
func plant(base string, bugs []Bug) (map[string]string, error) {
	sources := map[string]*source{}
	bugs = slices.SortedFunc(slices.Values(bugs), func(a, b Bug) int { return cmp.Compare(a.Name, b.Name) })
	for _, bug := range bugs {
		for _, h := range bug.hunks {
			src := sources[h.file]
			if src == nil {
				b, err := os.ReadFile(filepath.Join(base, filepath.FromSlash(h.file)))
				if err != nil {
					return nil, fmt.Errorf("planted bug %s: %w", bug.Name, err)
				}
				src = &source{lines: strings.Split(string(b), "\n"), gone: map[int]string{}, new: map[int][]string{}}
				sources[h.file] = src
			}
			if err := src.change(bug.Name, h); err != nil {
				return nil, fmt.Errorf("planted bug %s: %s: %w", bug.Name, h.file, err)
			}
		}
	}
	files := map[string]string{}
	for name, src := range sources {
		files[name] = packageClause.ReplaceAllString(src.text(), "$0\nimport \"github.com/tgad/tgad/internal/planted\"\n")
	}
	return files, nil
}

func (s *source) change(bug string, h hunk) error {
	old := h.old()
	at, places := 0, 0
	for i := 0; i+len(old) <= len(s.lines); i++ {
		if slices.Equal(s.lines[i:i+len(old)], old) {
			at = i
			places++
		}
	}
	if places != 1 {
		return fmt.Errorf("its place is there %d times", places)
	}
	for _, l := range h.lines {
		switch l[0] {
		case ' ':
			at++
		case '-':
			if other, ok := s.gone[at]; ok {
				return fmt.Errorf("line %d is changed by %s too", at+1, other)
			}
			s.gone[at] = bug
			at++
		case '+':
			s.new[at] = append(s.new[at], l[1:])
		}
	}
	return nil
}

func (s *source) text() string {
	var out []string
	for i, l := range s.lines {
		out = append(out, s.new[i]...)
		if _, ok := s.gone[i]; !ok {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}
