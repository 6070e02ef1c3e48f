package ui

import (
	"encoding/base64"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/internal/report"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// maxInReport is the largest document that a report contains, in bytes.
const maxInReport = 1 << 20

// Report is the page of a call as one file. It needs no daemon, no other file and no network, which its policy
// forbids. A reader can verify the chain in the browser.
func Report(said wire.Timeline, document story.Documents, version string) ([]byte, error) {
	t, err := story.Fold(said, document)
	if err != nil {
		return nil, err
	}
	moments := story.CourseOf(t).Moments
	if len(moments) == 0 {
		return nil, tga.Errorf(tga.NotFound, "trace %s has no entry", said.TraceID).In(said.TraceID)
	}
	raw, err := stored(said)
	if err != nil {
		return nil, err
	}
	script, err := assets.ReadFile("assets/verify.js")
	if err != nil {
		return nil, err
	}
	asOf := moments[len(moments)-1].TS // not the current time: the same state of a trace gives the same file
	return report.File(report.Page{
		Title: "Call " + said.TraceID.String(), Style: report.Style, Script: string(script), Footer: "tgad " + version,
		Data: raw, // json.Marshal leaves no "<" in it
		Main: []g.Node{h.P(h.Class("say"), h.Textf(words.reported, asOf)),
			h.Dl(facts(t)), course(t),
			h.H2(h.Text("Steps")), steps(t, inReport),
			h.P(h.Button(h.ID("verify"), h.Type("button"), h.Data("raw", ""), h.Text("Verify in this browser")), h.Span(h.ID("verdict"), h.Role("status"))),
			h.P(h.Class("dim"), h.Text("head "), h.Code(h.Text(t.Head.Digest.String())))},
	})
}

// inReport is a link that contains a document, or arguments that are cut. For a larger document it shows the digest.
func inReport(name string, data []byte) g.Node {
	if name == argsLine && len(data) <= maxShown {
		return g.Group{} // all of it is shown
	}
	if len(data) > maxInReport {
		return h.Span(h.Class("dim"), h.Textf(words.tooLarge, tga.Sum(data)))
	}
	return h.A(h.Href("data:application/octet-stream;base64,"+base64.StdEncoding.EncodeToString(data)), g.Attr("download", "document"), h.Text(words.download))
}
