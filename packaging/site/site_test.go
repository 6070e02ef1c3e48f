package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// made is the site of this checkout, in a directory of the test's own.
func made(t *testing.T) *site {
	t.Helper()
	s := &site{root: "../..", out: filepath.Join(t.TempDir(), "site")}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	return s
}

// change replaces a text in a page of the site, which must have it.
func change(t *testing.T, s *site, name, old, now string) {
	t.Helper()
	at := filepath.Join(s.out, name)
	raw, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), old) {
		t.Fatalf("%s has no %s", name, old)
	}
	if err := os.WriteFile(at, []byte(strings.ReplaceAll(string(raw), old, now)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestBrokenLinkIsFound(t *testing.T) {
	s := made(t)
	if err := check(s.out); err != nil {
		t.Fatalf("the site as it is: %v", err)
	}
	for _, broken := range []struct{ name, old, now string }{
		{"docs/COOKBOOK.html", "SEMANTICS.html#licences", "SEMANTICS.html#licenses"},
		{"docs/COOKBOOK.html", `"../docs/SEMANTICS.html"`, `"../docs/SEMANTIC.html"`},
		{"index.html", "docs/INSTALL.html", "docs/INSTALLATION.html"},
		{"docs/UI.html", "../docs/ui/inbox.png", "../docs/ui/inbox.gif"},
		{"docs/TUTORIAL.html", "../style.css", "../styles.css"},
	} {
		change(t, s, broken.name, broken.old, broken.now)
		if err := check(s.out); err == nil || !strings.Contains(err.Error(), strings.Trim(strings.TrimLeft(broken.now, "./\""), `"`)) {
			t.Errorf("%s with %s: %v", broken.name, broken.now, err)
		}
		change(t, s, broken.name, broken.now, broken.old)
	}
	if err := os.Remove(filepath.Join(s.out, "docs/WHY.html")); err != nil {
		t.Fatal(err)
	}
	if err := check(s.out); err == nil {
		t.Error("a page is gone, and every link is said to lead somewhere")
	}
}

func TestLinkToNoFileIsRefused(t *testing.T) {
	s := &site{root: "../..", pages: map[string]*page{}, plain: map[string]bool{}}
	if _, err := s.link(&page{file: "docs/WHY.md", Out: "docs/WHY.html"}, "NOWHERE.md", false); err == nil {
		t.Error("a link to a file that is not there was taken")
	}
}

func TestEveryPageHasItsPlace(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "docs", "NEW.md"), []byte("# New\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := (&site{root: root, out: filepath.Join(root, "site")}).run()
	if err == nil || !strings.Contains(err.Error(), "docs/NEW.md stands in no section") {
		t.Errorf("a page that nobody finds: %v", err)
	}
	s := made(t)
	all, err := files(s.out)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(s.pages) || len(all) < 30 {
		t.Errorf("%d files, %d pages", len(all), len(s.pages))
	}
	for _, name := range all {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(raw), `aria-current="page"`); n != 1 {
			t.Errorf("%s stands %d times in its own navigation", name, n)
		}
		if !regexp.MustCompile(`<title>[^<]{3,} · tgad</title>`).Match(raw) {
			t.Errorf("%s has no title", name)
		}
	}
}

// TestPagesLoadNothingFromElsewhere: what a browser fetches by itself is of the site, and the policy of each page says
// so too. A link that a reader may follow is another matter.
func TestPagesLoadNothingFromElsewhere(t *testing.T) {
	s := made(t)
	all, err := files(s.out)
	if err != nil {
		t.Fatal(err)
	}
	loads := regexp.MustCompile(`<(?:script|iframe|object|embed|video|audio|source)\b|\bsrc="(?:[a-z]+:)?//|<link[^>]*href="(?:[a-z]+:)?//|url\(|@import`)
	for _, name := range append(all, filepath.Join(s.out, "style.css")) {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// What is shown as code is text.
		shown := regexp.MustCompile(`(?s)<code[^>]*>.*?</code>`).ReplaceAllString(string(raw), "")
		if found := loads.FindString(shown); found != "" {
			t.Errorf("%s has %s", name, found)
		}
		if strings.HasSuffix(name, ".html") && !strings.Contains(shown, `content="default-src 'none'; style-src 'self'; img-src 'self'"`) {
			t.Errorf("%s has no policy", name)
		}
	}
}
