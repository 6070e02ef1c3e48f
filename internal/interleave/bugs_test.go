package interleave

import (
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/crashtest"
)

// shared are the planted bugs of the crash tiers that this tier finds as well.
var shared = []string{
	"no-mark", "mark-after-send", "blind-resend", "remote-sent-here", "sent-twice",
	"doubt-is-not-sent", "two-reserve", "window-ignored", "not-sent-after-doubt", "probe-without-fence",
}

// own are bugs that need more than one actor, in one order of many.
var own = []crashtest.Mutation{
	// The executor of an overtaken attempt is told to send, beside the newer one.
	{Name: "overtaken-begin", File: "runtime/remote.go",
		Old: "p.beginID == l.remote.beginID && p.last && !p.notSent",
		New: "p.beginID == l.remote.beginID && (p.last || planted.On(`overtaken-begin`)) && !p.notSent"},
	// A key that another request has is taken for this one's.
	{Name: "conflict-served", File: "ledger/decide.go",
		Old: "r.RequestDigest != q.Request}",
		New: "r.RequestDigest != q.Request && !planted.On(`conflict-served`)}"},
	// A peer ends a call that somebody else sent.
	{Name: "raw-ends-anothers", File: "runtime/authority.go",
		Old: "g.writer != c.Writer || g.origins&c.Origin == 0 {",
		New: "g.writer != c.Writer || g.origins&c.Origin == 0 && !planted.On(`raw-ends-anothers`) {"},
	// That a call did not run is believed while its executor has a permit to send it.
	{Name: "not-run-beside-a-permit", File: "runtime/overtake.go",
		Old: "record != nil && rt.executorAlive(record, l.policy) {",
		New: "record != nil && rt.executorAlive(record, l.policy) && !planted.On(`not-run-beside-a-permit`) {"},
	// The same word overtakes the process's own send, which is still waiting for its answer.
	{Name: "not-run-overtakes", File: "runtime/overtake.go",
		Old: "return rt.store.Overtake(ctx, trace, true)",
		New: "return rt.store.Overtake(ctx, trace, !planted.On(`not-run-overtakes`))"},
	// A clock that is set forward ends a fresh permit.
	{Name: "permit-by-the-wall", File: "runtime/executor.go",
		Old: "rt.permitLeft(record, policy) <= 0 {",
		New: "rt.permitLeft(record, policy) <= 0 || planted.On(`permit-by-the-wall`) && rt.clock.Now().Sub(record.Attempts.Newest.Time()) >= policy.PermitTime {"},
	// Whoever is overtaken sends all the same.
	{Name: "overtaken-sends", File: "runtime/run.go",
		Old: "	if !rt.store.Current(l.lease) {\n		return tga.Errorf(tga.StateConcurrentExecution, \"the call was ended before",
		New: "	if !planted.On(`overtaken-sends`) && !rt.store.Current(l.lease) {\n		return tga.Errorf(tga.StateConcurrentExecution, \"the call was ended before"},
	// What a living client waits for is served to another one.
	{Name: "foreign-answer", File: "runtime/repeat.go",
		Old: "			return call.Alive, nil",
		New: "			if planted.On(`foreign-answer`) {\n				return call.Gone, nil\n			}\n			return call.Alive, nil"},
	// The repeat of a call in doubt, whose client is gone, is taken for a new call.
	{Name: "repeat-runs-again", File: "internal/mcpfront/call/call.go",
		Old: "	holds := q.facts()\n	for",
		New: "	if planted.On(`repeat-runs-again`) && q.State == Doubt && q.Conn == Gone {\n		return New, \"planted\"\n	}\n	holds := q.facts()\n	for"},
	// An answer is taken for delivered when it is served.
	{Name: "served-is-delivered", File: "runtime/repeat.go",
		Old: "		if i >= 0 && (r.action == call.New || again) {",
		New: "		if i >= 0 && (r.action == call.New || again || planted.On(`served-is-delivered`) && r.action == call.Serve) {"},
	// The note of a delivery is left out of the append that was to take it along.
	{Name: "note-left-behind", File: "runtime/remote.go",
		Old: "	if fresh {\n		l.attachments = append(l.attachments, d.rows...)",
		New: "	if fresh && !planted.On(`note-left-behind`) {\n		l.attachments = append(l.attachments, d.rows...)"},
	// A begin that appends nothing drops its notes.
	{Name: "note-without-an-append", File: "runtime/remote.go",
		Old: "	if err == nil && !noted {",
		New: "	if err == nil && !noted && !planted.On(`note-without-an-append`) {"},
	// The rule does not look at what the same begin notes.
	{Name: "note-unseen-by-the-rule", File: "runtime/repeat.go",
		Old: "	r.list, r.trimmed = without(r.list, req.Delivered)",
		New: "	if !planted.On(`note-unseen-by-the-rule`) {\n		r.list, r.trimmed = without(r.list, req.Delivered)\n	}"},
	// A note strikes out whoever waits beside the call that it is about.
	{Name: "note-strikes-others", File: "runtime/deliver.go",
		Old: "	list, found := without(list, traces)\n",
		New: "	list, found := without(list, traces)\n	if planted.On(`note-strikes-others`) {\n		list = nil\n	}\n"},
	// The list of another identity is read and written without its lock.
	{Name: "note-without-its-lock", File: "runtime/deliver.go",
		Old: "		delete(struck, mine) // its list is read and written by the rule\n",
		New: "		delete(struck, mine)\n		if planted.On(`note-without-its-lock`) {\n			names = map[string][]tga.ID{mine: nil}\n		}\n"},
	// A model says that a call did not run, and is believed.
	{Name: "model-licenses", File: "runtime/settle.go",
		Old: "	case via == ViaModel && licenses:",
		New: "	case via == ViaModel && licenses && !planted.On(`model-licenses`):"},
	// What a model has settled looks like a person's word.
	{Name: "model-unsaid", File: "runtime/settle.go",
		Old: "	if via != \"\" {\n		w.meta",
		New: "	if via != \"\" && !planted.On(`model-unsaid`) {\n		w.meta"},
	// What a model has settled is struck out of the list when its answer was delivered.
	{Name: "model-delivered", File: "runtime/deliver.go",
		Old: "	if byModel(t) {\n		return nil // only",
		New: "	if byModel(t) && !planted.On(`model-delivered`) {\n		return nil // only"},
	// A call that a model gave up is taken for one that did not run.
	{Name: "model-unrun", File: "runtime/repeat.go",
		Old: "	case byModel(t):\n",
		New: "	case byModel(t) && planted.On(`model-unrun`):\n		return call.Unrun\n	case byModel(t):\n"},
	// A call that is not at its end is noted as delivered.
	{Name: "note-of-an-open-call", File: "runtime/deliver.go",
		Old: "		case err == nil && !t.Head.State.Terminal():",
		New: "		case err == nil && !t.Head.State.Terminal() && !planted.On(`note-of-an-open-call`):"},
}

// bugs are all bugs that this tier is given.
func bugs() []crashtest.Mutation {
	list := slices.Clone(own)
	for _, m := range crashtest.PlantedBugs {
		if slices.Contains(shared, m.Name) {
			list = append(list, m)
		}
	}
	return list
}

// TestPlantedBugsHaveTheirPlaces: a bug whose place has moved would be planted nowhere.
func TestPlantedBugsHaveTheirPlaces(t *testing.T) {
	if err := crashtest.HavePlaces(bugs()); err != nil {
		t.Error(err)
	}
}
