package ui

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/promtext"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// look is the number of appends at a time.
type look struct {
	at      time.Time
	appends float64
}

// checked is the result of a verification that was started in the view.
type checked struct {
	at   time.Time
	took time.Duration
	said wire.Verified
	err  error
}

// figure is one of a daemon's metrics, and how it is shown.
type figure struct {
	name, metric string
	show         func(float64) string
}

// figures are the metrics on the page of the store, under their titles. Metrics that the daemon does not have are left
// out, such as those of files for a store in a database.
var figures = []struct {
	title string
	of    []figure
}{
	{"Log", []figure{
		{"appends so far", "tgad_appends_total", count}, {"synced groups so far", "tgad_commits_total", count}, {"newest index", "tgad_log_cursor", count},
		{"log on disk", "tgad_log_bytes", mebibytes}, {"full segments that are not compressed yet", "tgad_log_uncompressed_segments", count}, {"bytes of those", "tgad_log_uncompressed_bytes", mebibytes},
		{"segments made smaller", "tgad_log_rewritten_segments_total", count},
	}},
	{"Disk", []figure{
		{"tables and logs", "tgad_disk_bytes", mebibytes}, {"free", "tgad_disk_free_bytes", mebibytes}, {"no new call below", "tgad_disk_low_water_bytes", mebibytes},
		{"slow writes", "tgad_store_slow_writes_total", count}, {"errors in the background", "tgad_store_background_errors_total", count}, {"corruptions found", "tgad_store_corruptions_total", count},
	}},
	{"Memory", []figure{
		{"calls kept", "tgad_cached_traces", count}, {"bytes of those", "tgad_cached_bytes", mebibytes}, {"of the index", "tgad_index_cached_bytes", mebibytes},
		{"blocks of the index read from memory", "tgad_index_hits_total", count}, {"and from disk", "tgad_index_misses_total", count},
	}},
	{"Now", []figure{
		{"ready", "tgad_ready", yes}, {"frozen", "tgad_store_frozen", yes}, {"quarantined", "tgad_store_quarantined", yes},
		{"keys that an older key ring does not have", "tgad_keyring_missing_keys", count},
		{"calls under way", "tgad_calls_in_flight", count}, {"in doubt", "tgad_in_doubt", count}, {"waiting for approval", "tgad_approvals_pending", count},
		{"leases held", "tgad_leases", count}, {"of those by peers", "tgad_leases_over_socket", count}, {"streams open", "tgad_streams", count},
		{"the index of lists is behind by", "tgad_lists_behind", appendsBehind}, {"the configuration was taken", "tgad_config_reload_success", yes},
		{"jumps of the clock", "tgad_clock_jumps_total", count},
	}},
}

// labelled are metrics with a label, such as the id of a receiver.
var labelled = []struct {
	title, label string
	of           []figure
}{
	{"Tool servers", "server", []figure{{"breakers that are open or on trial", "tgad_breakers_open", count}}},
	{"Receivers of the audit stream", "audit", []figure{{"behind", "tgad_audit_lag", appendsBehind}, {"failures", "tgad_audit_failures_total", count}}},
	{"Receivers of notices", "notify", []figure{{"late", "tgad_notify_late_seconds", seconds}, {"failures", "tgad_notify_failures_total", count}}},
}

// each shows the labelled metrics, one line for each value of the label.
func each(m promtext.Metrics) (parts g.Group) {
	for _, part := range labelled {
		says := map[string][]string{}
		for _, f := range part.of {
			for name, n := range m.By(f.metric, part.label) {
				says[name] = append(says[name], f.name+": "+f.show(n))
			}
		}
		var facts []g.Node
		for _, name := range slices.Sorted(maps.Keys(says)) {
			facts = append(facts, fact(clip.Clean(name), h.Text(strings.Join(says[name], ", "))))
		}
		if len(facts) > 0 {
			parts = append(parts, h.H2(h.Text(part.title)), h.Dl(facts...))
		}
	}
	return parts
}

func appendsBehind(n float64) string { return count(n) + " appends" }

func count(n float64) string { return fmt.Sprintf("%.0f", n) }

func mebibytes(n float64) string { return fmt.Sprintf("%.1f MiB", n/(1<<20)) }

func yes(n float64) string {
	if n == 0 {
		return "no"
	}
	return "yes"
}

// store is the page of the store: its daemon's metrics, the newest signed checkpoint, the last verification.
func (s *Server) store(w http.ResponseWriter, r *http.Request) {
	raw, err := s.do.Metrics(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	m, err := promtext.Parse(raw)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	body := g.Group{h.H2(h.Text("Speed")), s.speed(m)}
	for _, part := range figures {
		var facts []g.Node
		for _, f := range part.of {
			if n, err := m.Value(f.metric); err == nil && !math.IsNaN(n) {
				facts = append(facts, fact(f.name, h.Text(f.show(n))))
			}
		}
		body = append(body, h.H2(h.Text(part.title)), h.Dl(facts...))
	}
	body = append(body, each(m), h.H2(h.Text("Evidence")), s.evidence(r, m), h.H2(h.Text("Verification")), s.verification(r), howTried())
	s.page(w, r, http.StatusOK, words.store, s.living(r, shown, body...))
}

// speed is the rate of appends since the page was last shown, and how long syncs and appends take.
func (s *Server) speed(m promtext.Metrics) g.Node {
	appends, err := m.Value("tgad_appends_total")
	if err != nil {
		return problem(err)
	}
	now := look{time.Now(), appends}
	s.mu.Lock()
	last := s.seen
	s.seen = now
	s.mu.Unlock()
	rate := words.lookAgain
	if took := now.at.Sub(last.at); !last.at.IsZero() && appends >= last.appends {
		rate = fmt.Sprintf("%.1f a second, over the last %s", (appends-last.appends)/took.Seconds(), took.Round(100*time.Millisecond))
	}
	return h.Dl(fact("appends", h.Text(rate)), fact("a sync takes", within(m, "tgad_log_sync_seconds")), fact("an append takes", within(m, "tgad_append_seconds")))
}

// within shows the median and the 99th percentile of a histogram.
func within(m promtext.Metrics, name string) g.Node {
	half, n, err := m.Within(name, 0.5)
	if err != nil {
		return text(err.Error())
	}
	if n == 0 {
		return h.Text(words.noneYet)
	}
	most, _, err := m.Within(name, 0.99)
	if err != nil {
		return text(err.Error())
	}
	return h.Textf("half at most %s, 99 of 100 at most %s, of %.0f", seconds(half), seconds(most), n)
}

func seconds(s float64) string {
	if math.IsInf(s, 1) {
		return "more than the daemon measures"
	}
	return time.Duration(s * float64(time.Second)).String()
}

// evidence is the newest signed checkpoint, and who signed it. The view does not verify the signatures: tgad
// monitor does, which has the keys.
func (s *Server) evidence(r *http.Request, m promtext.Metrics) g.Node {
	signed, err := s.do.Proofs().Checkpoint(r.Context())
	if tga.CodeOf(err) == tga.NotFound {
		return h.P(h.Class("say"), h.Text(words.unsigned))
	}
	if err != nil {
		return problem(err)
	}
	origin, rest, _ := strings.Cut(signed.Checkpoint, "\n")
	size, _, _ := strings.Cut(rest, "\n")
	facts := []g.Node{fact("origin", text(origin)), fact("covers", text(size+" appends"))}
	cursor, err := m.Value("tgad_log_cursor")
	if covered, e := m.Value("tgad_signed_appends"); err == nil && e == nil && !math.IsNaN(covered) {
		facts = append(facts, fact("not covered yet", h.Text(count(max(cursor-covered, 0)))))
	}
	if at, err := m.Value("tgad_signed_timestamp_seconds"); err == nil && !math.IsNaN(at) {
		facts = append(facts, fact("signed at", when(tga.Millis(at*1000))))
	}
	return h.Dl(append(facts, fact("signed by", text(strings.Join(signers(signed.Checkpoint), ", "))))...)
}

// signers are the names under a signed note.
func signers(signed string) (names []string) {
	_, err := note.Open([]byte(signed), note.VerifierList())
	if unverified, ok := err.(*note.UnverifiedNoteError); ok {
		for _, sig := range unverified.Note.UnverifiedSigs {
			names = append(names, sig.Name)
		}
	}
	return names
}

// verification is the result of the last verification that was started in the view, and the button for the next.
func (s *Server) verification(r *http.Request) g.Node {
	s.mu.Lock()
	last := s.checked
	s.mu.Unlock()
	found := g.Node(h.P(h.Class("say"), h.Text(words.notVerified)))
	if last != nil {
		found = last.found()
	}
	if !acts(r) {
		return found
	}
	return g.Group{found, h.Form(h.Method("post"), h.Action("/store/verify"), token(r), h.Button(h.Type("submit"), h.Text("Verify the whole store")))}
}

func (c *checked) found() g.Node {
	if c.err != nil {
		return problem(c.err)
	}
	faults := g.Map(c.said.Faults, func(p wire.Problem) g.Node { return problem(p.Err()) })
	verdict := "every digest and link agrees"
	if !c.said.OK || len(c.said.Faults) > 0 {
		verdict = fmt.Sprintf("%d faults", len(c.said.Faults))
	}
	return g.Group{
		h.P(h.Role("status"), when(tga.MillisOf(c.at)), h.Textf(", in %s: %s, of %d calls, %d entries and %d notes.", c.took.Round(time.Millisecond), verdict, c.said.Traces, c.said.Entries, c.said.Notes)),
		g.If(c.said.Frozen != "", h.P(h.Class("problem"), text("frozen: "+c.said.Frozen))), faults,
	}
}

// verify asks the daemon to verify its store.
func (s *Server) verify(w http.ResponseWriter, r *http.Request) {
	if !s.permitted(w, r) {
		return
	}
	c := &checked{at: time.Now()}
	c.said, c.err = s.do.Verify(r.Context(), tga.ID{})
	c.took = time.Since(c.at)
	s.mu.Lock()
	s.checked = c
	s.mu.Unlock()
	http.Redirect(w, r, "/store", http.StatusSeeOther)
}
