package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
)

const hostile = `</title></script></style><script>alert(1)</script><img src=x onerror=alert(1)>"'` + "\u202e\x00\x1b[31m"

// everything is a report with the given words in each field that takes words.
func everything(words string) []Section {
	at := [][2]float64{{1, 2}, {10, 20}}
	return []Section{{
		Heading: words, Problems: []string{words}, Say: []string{words}, Facts: [][2]string{{words, words}},
		Tables:   []Table{{Name: words, Rows: [][]string{{words, "n"}, {words, "1,234.5"}, {words, ""}}}},
		Commands: []string{words, words}, Folded: words, Lines: []string{words},
		Plots: []Plot{
			Lines{Title: words, X: Axis{Name: words}, Y: Axis{Name: words, Log: true}, Lines: []Line{{words, at}}, Marks: []float64{3}, MarkName: words, Dots: true},
			Rows{Title: words, X: Axis{Name: words}, Names: []string{words, words}, Rows: []Row{{words, []float64{1, 2}}}, Base: 1},
		},
	}}
}

// TestHostileWordsAreText: the words of a result are text, in every field of a report.
func TestHostileWordsAreText(t *testing.T) {
	page, err := Of(hostile, hostile, everything(hostile))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "<img", "\u202e", "\x00", "\x1b", `"'`} {
		if bytes.Contains(page, []byte(bad)) {
			t.Errorf("the page has %q", bad)
		}
	}
	sane, err := Of("words", "words", everything("words"))
	if err != nil {
		t.Fatal(err)
	}
	tag := regexp.MustCompile(`<[^>]*>`)
	tags := func(page []byte) (names []string) {
		_, body, _ := strings.Cut(string(page), "</style>")
		for _, m := range tag.FindAllString(body, -1) {
			names = append(names, strings.Trim(strings.Fields(m)[0], "<>"))
		}
		return names
	}
	if got, want := strings.Join(tags(page), " "), strings.Join(tags(sane), " "); got != want {
		t.Errorf("hostile words change the elements from\n%s\nto\n%s", want, got)
	}
	if got, want := bytes.Count(page, []byte("&lt;script&gt;")), bytes.Count(sane, []byte("words")); got != want {
		t.Errorf("%d of %d places show what they were given", got, want)
	}
}

// TestPageIsAlone: a page names no other place, and its policy allows only its own style and script.
func TestPageIsAlone(t *testing.T) {
	of, err := Of("title", "footer", everything("words"))
	if err != nil {
		t.Fatal(err)
	}
	with, err := File(Page{Title: "title", Style: Style, Data: []byte(`{"a":1}`), Script: "document.title"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		page    []byte
		scripts int
	}{"report": {of, 0}, "with a script": {with, 2}} {
		page := string(want.page)
		_, body, _ := strings.Cut(page, "</style>")
		for _, bad := range []string{"http://", "https://", "@import", "url(", " src=", "<link", "<form", "<iframe", " style=", " href="} {
			if strings.Contains(body, bad) {
				t.Errorf("%s: it has %q", name, bad)
			}
		}
		if regexp.MustCompile(`<[^>]*\son\w+=`).MatchString(body) {
			t.Errorf("%s: an element does something", name)
		}
		if strings.Contains(Style+plotStyle, "url(") || strings.Contains(Style+plotStyle, "@import") {
			t.Error("the style has what it does not bring")
		}
		policy := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)
		if policy == nil {
			t.Fatalf("%s has no policy", name)
		}
		parts := map[string]string{}
		for part := range strings.SplitSeq(strings.ReplaceAll(policy[1], "&#39;", "'"), "; ") {
			name, value, _ := strings.Cut(part, " ")
			parts[name] = value
		}
		if parts["default-src"] != "'none'" || parts["base-uri"] != "'none'" || parts["form-action"] != "'none'" || len(parts) != 5 {
			t.Errorf("%s: its policy is %v", name, parts)
		}
		scripts := 0
		for _, of := range regexp.MustCompile(`(?s)<(script|style)([^>]*)>(.*?)</(?:script|style)>`).FindAllStringSubmatch(page, -1) {
			sum := sha256.Sum256([]byte(of[3]))
			source := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
			if allowed := parts[of[1]+"-src"] == source; allowed == strings.Contains(of[2], "json") {
				t.Errorf("%s: %s%s: allowed %v", name, of[1], of[2], allowed)
			}
			if of[1] == "script" {
				scripts++
			}
		}
		if scripts != want.scripts || want.scripts == 0 && parts["script-src"] != "'none'" {
			t.Errorf("%s has %d scripts, and allows %s", name, scripts, parts["script-src"])
		}
	}
}

// TestFiguresWithoutAPlace: zero on a logarithmic axis, values that are not numbers, one point, no point.
// The picture is still a document whose coordinates are numbers, and each figure that has a place is in it.
func TestFiguresWithoutAPlace(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, log := range []bool{false, true} {
		for name, c := range map[string]struct {
			points [][2]float64
			linear int
			logs   int
		}{
			"none": {nil, 0, 0}, "one": {[][2]float64{{5, 5}}, 1, 1}, "zero": {[][2]float64{{0, 0}}, 1, 0}, "equal": {[][2]float64{{7, 7}, {7, 7}}, 2, 2},
			"no number": {[][2]float64{{nan, 1}, {1, nan}, {inf, 1}, {1, -inf}, {3, 4}}, 1, 1}, "below zero": {[][2]float64{{1, -4}, {2, 4}}, 2, 1},
		} {
			lines := Lines{Title: name, X: Axis{Log: log}, Y: Axis{Log: log}, Lines: []Line{{"a", c.points}}, Marks: []float64{nan, 0, 1}, Dots: true}
			rows := Rows{Title: name, X: Axis{Log: log}, Names: []string{"a", "b"}, Base: 1}
			for _, at := range c.points {
				rows.Rows = append(rows.Rows, Row{"row", at[:]})
			}
			for _, p := range []Plot{lines, rows} {
				raw, err := SVG(p)
				if err != nil {
					t.Fatal(err)
				}
				for dec := xml.NewDecoder(bytes.NewReader(raw)); ; {
					if _, err := dec.Token(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						t.Fatalf("%s: %v\n%s", name, err, raw)
					}
				}
				if text := string(raw); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
					t.Errorf("%s, logarithmic %v: a place that is none\n%s", name, log, text)
				}
			}
			raw, _ := SVG(lines)
			want := c.linear
			if log {
				want = c.logs
			}
			if got := bytes.Count(raw, []byte("<path")); got != want {
				t.Errorf("%s, logarithmic %v: %d points, want %d", name, log, got, want)
			}
		}
	}
}

// TestGrouped: a figure is written as people write it.
func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -100: "-100", 1234567: "1,234,567"} {
		if got := Grouped(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}
