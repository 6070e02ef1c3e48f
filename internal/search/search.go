// Package search is an index of the traces of a store by what a list is asked for: server, tool, key,
// namespace, state, outcome, and the time since which a trace is in its state. With it the newest
// calls of a store, or those of one tool, are a page read by index where a store alone is read from
// one end to the other.
//
// It is a function of the log, made behind it: no append waits for it, and each of its transactions says
// up to which append it has come. So it is lost without harm: what is damaged, of another store, or ahead
// of a store that was put back is made anew. A list never shows what only the index says: it gives ids, and
// the rest is read from the log.
//
// What a row has of a trace ([RowOf]), which rows a query finds and in which order ([Query.Where], [Order]), and
// how the rows follow the log ([Index]) stands here once. Where the rows lie is a [Table]: a SQLite database beside
// the log of a store in a directory, or tables of the database that a store is in.
//
// # Invariants
//
//	behind   no row is of an append that is not durable               [store.Follow]     TestIndexIsAFunctionOfTheLog, TestListsAreAFunctionOfTheLog
//	whole    after a crash at any point the index is that of the log  [Index.catchUp]    TestIndexIsAFunctionOfTheLog, TestListsAreAFunctionOfTheLog
//	erased   what was erased from the log is not left in the index    [Index.Erase],     TestErasedNamesLeaveTheIndex,
//	                                                                  [Index.again]      TestErasedNamesLeaveTheLists
//	paced    it takes a quarter of a processor, but for who waits     [Index.rest]       TestIndexRestsAfterItsWork
//	off      where none is asked for, none is left                    Remove             TestIndexThatIsNotAskedForIsRemoved, TestListsThatNobodyAsksForAreRemoved
package search

import (
	"context"
	"fmt"
	"strings"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Lists is an index as a list is made of it.
type Lists interface {
	// Find returns a page of traces that match, the newest first. They are those of the index: who lists
	// them reads from the log what they are now. STORE_UNAVAILABLE: the index is being made.
	Find(ctx context.Context, q Query) ([]Mark, error)
	// Behind is how many appends are not in the index yet. It asks nobody.
	Behind() uint64
	// Run keeps the index until ctx ends or the store closes. Close comes after it.
	Run(ctx context.Context)
	Close() error
}

// Row is what the index has of a trace.
type Row struct {
	ID                           tga.ID
	Since                        tga.Millis
	Namespace, Server, Tool, Key string
	State                        tga.State
	Class                        ledger.Class
}

// Format is the number of what [RowOf] makes of a log. Another rule has another number: rows of the old one are made
// anew.
const Format = 1

// RowOf is the row of a trace that has an entry.
func RowOf(t *chain.Trace) Row {
	l := t.Listing()
	return Row{l.TraceID, l.Since, l.Namespace, l.Server, l.Tool, l.Key, l.State, ClassOf(t)}
}

// ClassOf is the outcome class of a trace's effect, [ledger.ClassNone] where it has none at hand.
func ClassOf(t *chain.Trace) ledger.Class {
	if t.Effect == nil {
		return ledger.ClassNone
	}
	return ledger.ClassOf(t.Effect)
}

// Query asks for a page of traces, the newest first. What it leaves out matches everything.
type Query struct {
	Namespace         string
	Server, Tool, Key string
	States            []tga.State // any of them
	Class             ledger.Class
	Since, Until      tga.Millis // since when it is in its state: from, and before; 0 = no bound
	After             Mark       // the last row of the page before
	Limit             int
}

// Mark is a place in the order of a list. Two traces of one millisecond are in the order of their ids.
type Mark struct {
	Since tga.Millis
	Trace tga.ID
}

// Compare says which of two marks comes first in a list: -1 for m.
func (m Mark) Compare(n Mark) int {
	switch {
	case m.Since > n.Since:
		return -1
	case m.Since < n.Since:
		return 1
	}
	return strings.Compare(string(n.Trace[:]), string(m.Trace[:]))
}

// Order is that of a list, in SQL.
const Order = "ORDER BY since DESC, id DESC"

// Dialect is how a database writes and takes the values of a statement.
type Dialect struct {
	Param func(n int) string // of the value with that number, from 1 on
	Text  func(string) any
	ID    func(tga.ID) any
}

// Where is what a query asks of the columns since, id, namespace, server, tool, key, state and class of a row, in SQL.
// args are the values before those of the query.
func (q *Query) Where(d Dialect, args ...any) (condition string, values []any) {
	where, values := []string{"true"}, args
	value := func(v any) string {
		values = append(values, v)
		return d.Param(len(values))
	}
	add := func(format string, of ...any) { where = append(where, fmt.Sprintf(format, of...)) }
	for _, c := range []struct{ column, text string }{{"namespace", q.Namespace}, {"server", q.Server}, {"tool", q.Tool}, {"key", q.Key}} {
		if c.text != "" {
			add("%s = %s", c.column, value(d.Text(c.text)))
		}
	}
	if q.Key != "" {
		add("key <> ''") // so that its index, which has no empty ones, is of use
	}
	if len(q.States) > 0 {
		states := make([]string, len(q.States))
		for i, s := range q.States {
			states[i] = fmt.Sprint(int64(s))
		}
		add("state IN (%s)", strings.Join(states, ", "))
	}
	if q.Class != ledger.ClassNone {
		add("class = %d", int64(q.Class))
	}
	if q.Since != 0 {
		add("since >= %s", value(int64(q.Since)))
	}
	if q.Until != 0 {
		add("since < %s", value(int64(q.Until)))
	}
	if q.After != (Mark{}) {
		add("(since, id) < (%s, %s)", value(int64(q.After.Since)), value(d.ID(q.After.Trace)))
	}
	return strings.Join(where, " AND "), values
}

// OfArtifacts reports whether a query asks for what an erasure takes from a trace.
func (q *Query) OfArtifacts() bool {
	return q.Server != "" || q.Tool != "" || q.Key != "" || q.Class != ledger.ClassNone
}
