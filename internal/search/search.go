// Package search is an index of the traces of a store, by the values that a list is filtered by: server,
// tool, key, namespace, state, outcome, and the time at which a trace came into its state. With the index,
// a page of the newest calls of a store, or of one tool, is found directly. Without it, the whole store
// is read.
//
// The index is a function of the log and follows it: no append waits for the index, and each transaction
// of the index records the append that it has reached. So losing the index does no harm. An index that is
// damaged, belongs to another store, or is ahead of a restored store is made anew. A list never shows what
// only the index says: the index gives ids, and everything else is read from the log.
//
// This package defines what a row has of a trace ([RowOf]), which rows a query finds and in which order
// ([Query.Where], [Order]), and how the rows follow the log ([Index]). A [Table] stores the rows: a SQLite database
// beside the log of a store in a directory, or tables of the database that a store is in.
//
// # Invariants
//
//	behind   no row is of an append that is not durable               [store.Follow]     TestIndexIsAFunctionOfTheLog, TestListsAreAFunctionOfTheLog
//	whole    after a crash at any point the index is that of the log  [Index.catchUp]    TestIndexIsAFunctionOfTheLog, TestListsAreAFunctionOfTheLog
//	erased   what was erased from the log is not left in the index    [Index.Erase],     TestErasedNamesLeaveTheIndex,
//	                                                                  [Index.again]      TestErasedNamesLeaveTheLists
//	paced    it takes a quarter of a processor, unless a list waits   [Index.rest]       TestIndexRestsAfterItsWork
//	off      an index that is no longer configured is removed         Remove             TestIndexThatIsNotAskedForIsRemoved, TestListsThatNobodyAsksForAreRemoved
package search

import (
	"context"
	"fmt"
	"strings"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Lists is what a list needs of an index.
type Lists interface {
	// Find returns a page of matching traces, the newest first, as the index has them. The caller
	// reads their present state from the log. STORE_UNAVAILABLE: the index is being made.
	Find(ctx context.Context, q Query) ([]Mark, error)
	// Behind returns how many appends are not in the index yet. It does not access the database.
	Behind() uint64
	// Run keeps the index current until ctx ends or the store closes. Call Close after Run has returned.
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

// Format is the version of [RowOf]. If RowOf changes, it gets the next number, and rows of the old version are made
// anew.
const Format = 1

// RowOf returns the row of a trace, which must have an entry.
func RowOf(t *chain.Trace) Row {
	l := t.Listing()
	return Row{l.TraceID, l.Since, l.Namespace, l.Server, l.Tool, l.Key, l.State, ClassOf(t)}
}

// ClassOf returns the outcome class of a trace's effect, [ledger.ClassNone] if the effect is missing or erased.
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
	Since, Until      tga.Millis // it came into its state at Since or later, and before Until; 0 = no bound
	After             Mark       // the last row of the page before
	Limit             int
}

// Mark is a place in the order of a list. Traces of the same millisecond are ordered by their ids.
type Mark struct {
	Since tga.Millis
	Trace tga.ID
}

// Compare returns -1 if m comes before n in a list, 0 if they are equal, and 1 otherwise.
func (m Mark) Compare(n Mark) int {
	switch {
	case m.Since > n.Since:
		return -1
	case m.Since < n.Since:
		return 1
	}
	return strings.Compare(string(n.Trace[:]), string(m.Trace[:]))
}

// Order is the order of a list, in SQL.
const Order = "ORDER BY since DESC, id DESC"

// Dialect says how a database names and takes the values of a statement.
type Dialect struct {
	Param func(n int) string // of the value with that number, from 1 on
	Text  func(string) any
	ID    func(tga.ID) any
}

// Where returns the query's condition on the columns since, id, namespace, server, tool, key, state and class of a row,
// in SQL, and the values of the statement. args are values that come before those of the query.
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
		add("key <> ''") // so that the partial index of keys, which has no empty keys, can be used
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

// OfArtifacts reports whether a query filters by values that an erasure removes from a trace.
func (q *Query) OfArtifacts() bool {
	return q.Server != "" || q.Tool != "" || q.Key != "" || q.Class != ledger.ClassNone
}
