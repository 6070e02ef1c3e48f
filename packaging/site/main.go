// Command site makes the documentation of the checkout into a site of static files: a page of HTML for each page
// of Markdown, with a navigation by kind. Nothing of it is linked into tgad.
//
// # Invariants
//
//	whole   every page of docs, and every README, stands in the navigation once     [site.pages]   TestEveryPageHasItsPlace
//	local   a page loads nothing from anywhere else, and its policy forbids it      [layout]       TestPagesLoadNothingFromElsewhere
//	linked  each link to a page or a heading leads to one that is there             [check]        TestBrokenLinkIsFound
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// sections are the kinds of pages. A page is looked for by what its reader wants: to learn, to get something
// done, to look something up, to understand.
var sections = []section{
	{"Start", []string{"README.md", "docs/TUTORIAL.md", "docs/SESSION.md", "clients/python/README.md", "clients/typescript/README.md"}},
	{"How to", []string{
		"docs/INSTALL.md", "docs/COOKBOOK.md", "docs/MCP.md", "docs/OPERATIONS.md", "docs/SCALE.md", "docs/TELEMETRY.md", "docs/UI.md", "docs/TORTURE.md",
		"examples/frameworks/vercel-ai/README.md", "examples/frameworks/openai-agents/README.md", "examples/frameworks/langgraph/README.md",
		"examples/frameworks/mastra/README.md", "examples/frameworks/claude-agent/README.md", "examples/telemetry/README.md", "CONTRIBUTING.md", "SECURITY.md",
	}},
	{"Reference", []string{"docs/CONFIG.md", "docs/PROTOCOL.md", "docs/ERRORS.md", "docs/FORMAT.md", "docs/OSSA.md", "test_vectors/README.md", "CHANGELOG.md"}},
	{"Explanation", []string{"docs/WHY.md", "docs/COMPARE.md", "docs/SEMANTICS.md", "docs/EVIDENCE.md", "docs/STATE.md", "docs/ARCHITECTURE.md", "docs/CRASH.md", "docs/PERFORMANCE.md"}},
}

type section struct {
	Title string
	files []string
}

// repository is where a reader finds what is no page.
const repository = "https://github.com/tgad/tgad/blob/main/"

//go:embed page.html
var layout string

//go:embed style.css
var style []byte

// page is a page of Markdown on its way.
type page struct {
	file  string // in the checkout
	Out   string // in the site
	Title string
	body  bytes.Buffer
}

// site is one run.
type site struct {
	root  string // the checkout
	out   string
	pages map[string]*page // by file
	plain map[string]bool  // files that pages show
}

func main() {
	s := &site{}
	flag.StringVar(&s.root, "root", "..", "the `checkout`")
	flag.StringVar(&s.out, "out", "../dist/site", "`directory` of the site: made anew")
	flag.Parse()
	err := s.run()
	if err == nil {
		err = check(s.out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%d pages in %s, every link leads somewhere\n", len(s.pages), s.out)
}

// run makes the site.
func (s *site) run() error {
	s.pages, s.plain = map[string]*page{}, map[string]bool{}
	for _, of := range sections {
		for _, file := range of.files {
			s.pages[file] = &page{file: file, Out: outOf(file)}
		}
	}
	if err := s.missing(); err != nil {
		return err
	}
	for _, p := range s.pages {
		if err := s.read(p); err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
	}
	if err := os.RemoveAll(s.out); err != nil {
		return err
	}
	if err := s.write("style.css", style); err != nil {
		return err
	}
	for file := range s.plain {
		raw, err := os.ReadFile(filepath.Join(s.root, file))
		if err == nil {
			err = s.write(file, raw)
		}
		if err != nil {
			return err
		}
	}
	form, err := template.New("page").Parse(layout)
	if err != nil {
		return err
	}
	for _, p := range s.pages {
		var whole bytes.Buffer
		if err := form.Execute(&whole, s.view(p)); err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
		if err := s.write(p.Out, whole.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// outOf is where a file of Markdown stands in the site: a README is its directory's page.
func outOf(file string) string {
	if path.Base(file) == "README.md" {
		return path.Join(path.Dir(file), "index.html")
	}
	return strings.TrimSuffix(file, ".md") + ".html"
}

// missing names pages that no section has.
func (s *site) missing() error {
	var all []error
	err := filepath.WalkDir(s.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(s.root, name)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		switch base := d.Name(); {
		case d.IsDir() && (file != "." && strings.HasPrefix(base, ".") || base == "node_modules" || base == "testdata" || file == "dist" || file == "bin"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(file, ".md") && s.pages[file] == nil:
			all = append(all, fmt.Errorf("%s stands in no section of the navigation", file))
		}
		return nil
	})
	return errors.Join(append(all, err)...)
}

// read makes the HTML of a page.
func (s *site) read(p *page) error {
	raw, err := os.ReadFile(filepath.Join(s.root, p.file))
	if err != nil {
		return err
	}
	md := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	doc := md.Parser().Parse(text.NewReader(raw), parser.WithContext(parser.NewContext(parser.WithIDs(headings{}))))
	err = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Heading:
			if p.Title == "" {
				p.Title = words(n, raw)
			}
		case *ast.Link:
			n.Destination, err = s.link(p, string(n.Destination), false)
		case *ast.Image:
			n.Destination, err = s.link(p, string(n.Destination), true)
		}
		return ast.WalkContinue, err
	})
	if err != nil {
		return err
	}
	return md.Renderer().Render(&p.body, raw, doc)
}

// words is the text of a node.
func words(n ast.Node, raw []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Segment.Value(raw))
		} else {
			b.WriteString(words(c, raw))
		}
	}
	return b.String()
}

// link is where a link of a page leads in the site: to another page, to a file that goes along if it is shown, or to
// the repository.
func (s *site) link(p *page, to string, shown bool) ([]byte, error) {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "#") || strings.HasPrefix(to, "mailto:") {
		return []byte(to), nil
	}
	file, heading, marked := strings.Cut(to, "#")
	file = path.Join(path.Dir(p.file), file)
	if _, err := os.Stat(filepath.Join(s.root, file)); err != nil {
		return nil, fmt.Errorf("the link %s: %w", to, err)
	}
	at := repository + file
	if other := s.pages[file]; other != nil {
		at = relative(p.Out, other.Out)
	} else if shown {
		s.plain[file] = true
		at = relative(p.Out, file)
	}
	if marked {
		at += "#" + heading
	}
	return []byte(at), nil
}

// relative is the way from one file of the site to another.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}

// headings names headings as the pages' own links do.
type headings map[string]bool

// Generate implements [parser.IDs].
func (h headings) Generate(value []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(string(value))) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	id := b.String()
	for n := 1; h[id]; n++ {
		id = fmt.Sprintf("%s-%d", b.String(), n)
	}
	h[id] = true
	return []byte(id)
}

// Put implements [parser.IDs].
func (h headings) Put(value []byte) { h[string(value)] = true }

// view is what the layout is filled with.
type view struct {
	Title    string
	Root     string // the way to the site's root
	Body     template.HTML
	Sections []listed
}

type listed struct {
	Title string
	Pages []place
}

type place struct {
	At, Title string
	Here      bool
}

func (s *site) view(p *page) view {
	v := view{Title: p.Title, Root: strings.Repeat("../", strings.Count(p.Out, "/")), Body: template.HTML(p.body.String())} // #nosec: our own pages
	for _, of := range sections {
		l := listed{Title: of.Title}
		for _, file := range of.files {
			to := s.pages[file]
			l.Pages = append(l.Pages, place{At: relative(p.Out, to.Out), Title: to.Title, Here: to == p})
		}
		v.Sections = append(v.Sections, l)
	}
	return v
}

func (s *site) write(name string, raw []byte) error {
	at := filepath.Join(s.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, raw, 0o644)
}

// files returns the pages of a site that was made.
func files(dir string) ([]string, error) {
	var all []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".html") {
			all = append(all, name)
		}
		return err
	})
	slices.Sort(all)
	return all, err
}
