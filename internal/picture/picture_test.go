package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
)

// elements counts the elements of a picture by name. The picture must be well-formed.
func elements(t *testing.T, svg []byte) map[string]int {
	t.Helper()
	count := map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
}

func resent() *story.Course {
	return &story.Course{
		Moments:  []story.Moment{{TS: 1000, State: "PENDING"}, {TS: 1000, State: "AUTHORIZED"}, {TS: 1001, State: "EXECUTING"}, {TS: 3601001, Note: "attempt"}, {TS: 3601101, State: "COMPLETED"}},
		Attempts: []story.Attempt{{Number: 1, From: 2, To: 3, End: story.Gone}, {Number: 2, From: 3, To: 4, End: story.Answered}},
	}
}

func TestWhatNobodyKnowsIsHatched(t *testing.T) {
	svg := string(Draw("payments charge", resent()))
	if n := strings.Count(svg, `fill="url(#unknown)"`); n != 1 {
		t.Errorf("%d stretches are hatched, want that of the first attempt:\n%s", n, svg)
	}
	for _, want := range []string{
		"attempt 1: its sender was gone: it may have run", "attempt 2: answered", "+1h0m0s", "1970-01-01 01:00:01.001",
		"EXECUTING · attempt 1 may be sent from here on", "note attempt · attempt 1: its sender was gone: it may have run · attempt 2 may be sent from here on",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	for name, c := range map[string]*story.Course{
		"in doubt": {Moments: resent().Moments[:3], Attempts: []story.Attempt{{Number: 1, From: 2, To: -1}}, Doubt: true, Open: true},
		"served":   {Moments: append(resent().Moments[:3:3], resent().Moments[4]), Served: true},
	} {
		svg := string(Draw(name, c))
		fill := map[string]string{"in doubt": "url(#unknown)", "served": "url(#served)"}[name]
		if !strings.Contains(svg, `rx="3" fill="`+fill+`"><title>EXECUTING: `+name) {
			t.Errorf("%s:\n%s", name, svg)
		}
	}
}

func TestHostileNamesAreText(t *testing.T) {
	plain := elements(t, Draw("payments charge", resent()))
	hostile := resent()
	hostile.Moments[3].Note = "</text><script>alert(1)</script>"
	svg := Draw("a\"<image href='x'/>&\x00\u202e]]>\xff", hostile)
	if got := elements(t, svg); fmt.Sprint(got) != fmt.Sprint(plain) {
		t.Errorf("elements %v, want %v", got, plain)
	}
	if bytes.ContainsRune(svg, '\u202e') {
		t.Error("its text is turned round")
	}
}

func TestLongerIsWider(t *testing.T) {
	before := 0.0
	for _, ms := range []int64{0, 1, 100, 10_000, 3_600_000} {
		w := width(ms)
		if w <= before || w < least || w > most {
			t.Errorf("%d ms are %v pixels, the shorter stretch %v", ms, w, before)
		}
		before = w
	}
	if width(-5) != width(0) || width(1<<62) != most {
		t.Error("a clock that was put back, or far on, has no picture")
	}
}

func TestMiddleOfALongTraceIsLeftOut(t *testing.T) {
	for n, left := range map[int]int{1: 0, maxMoments: 0, maxMoments + 1: 1, 10_000: 10_000 - maxMoments} {
		c := &story.Course{Open: true}
		for i := range n {
			c.Moments = append(c.Moments, story.Moment{TS: tga.Millis(i), Note: "probe"})
		}
		c.Moments[0] = story.Moment{State: "PENDING"}
		svg := string(Draw("x", c))
		elements(t, []byte(svg))
		if got := strings.Contains(svg, fmt.Sprintf("… %d more are not drawn …", left)); got != (left > 0) {
			t.Errorf("of %d moments: left out %v, want %d", n, got, left)
		}
		if got := strings.Count(svg, "<line "); got != n-left {
			t.Errorf("of %d moments %d are drawn", n, got)
		}
		if !strings.Contains(svg, fmt.Sprintf(`font-size="10">%d</text>`, n)) {
			t.Errorf("of %d moments the newest is not drawn", n)
		}
	}
}
