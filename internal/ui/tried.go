package ui

import g "maragu.dev/gomponents"

// tried says how the design of the store was tested. docs/CRASH.md has the method, and the runs with their commits.
// TestFiguresAreThoseOfTheRuns compares the numbers with those of the runs.
var tried = []struct{ what, n string }{
	{"recoveries after a crash", "2,679,408"},
	{"of them after a crash inside a recovery", "1,057,696"},
	{"real processes killed", "22,956"},
	{"power cuts on real file systems", "4,976"},
	{"corruptions", "195,735"},
	{"calls sent again without a licence, effects doubled, acknowledged records lost, corruptions unseen", "0"},
}

func howTried() g.Node {
	var facts []g.Node
	for _, t := range tried {
		facts = append(facts, fact(t.what, h.Text(t.n)))
	}
	return g.Group{h.H2(h.Text(words.tried)), h.P(h.Class("say"), h.Text(words.triedHow)), h.Dl(facts...)}
}
