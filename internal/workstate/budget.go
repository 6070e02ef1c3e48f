package workstate

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"sync"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Usage is what an evaluation spends. Money is in millionths of the currency's unit.
type Usage struct {
	Tokens      int64 `json:"tokens,omitempty"`
	MoneyMicros int64 `json:"money_micros,omitempty"`
	Calls       int64 `json:"calls,omitempty"`
}

func (u Usage) add(v Usage) Usage {
	return Usage{sum(u.Tokens, v.Tokens), sum(u.MoneyMicros, v.MoneyMicros), sum(u.Calls, v.Calls)}
}

// sum returns a + b. A sum that is too large is the largest number: it exceeds every limit.
func sum(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Budget counts what evaluations spend, against a limit for each of them. It is a
// [Brancher] whose branches never conflict: charges add up. Every call that commits is
// charged as one call. A call that fails is not: its charges are undone with its changes.
// So a limit of calls does not bound a loop of calls that fail.
type Budget struct {
	limit  Usage
	mu     sync.Mutex
	parent *Budget
	spent  map[string]Usage // in a branch: by it alone; replaced, never changed
	head   *Node            // of a root; nil = to be made
}

// NewBudget returns a budget in which nothing is spent. Zero fields of limit are no
// limit.
func NewBudget(limit Usage) *Budget { return &Budget{limit: limit, spent: map[string]Usage{}} }

type evaluationKey struct{}

// WithEvaluation names the evaluation to which calls made under ctx are charged.
func WithEvaluation(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, evaluationKey{}, name)
}

// Evaluation returns the name given by [WithEvaluation], or "".
func Evaluation(ctx context.Context) string {
	name, _ := ctx.Value(evaluationKey{}).(string)
	return name
}

// Spent returns what an evaluation has spent.
func (b *Budget) Spent(evaluation string) Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.spent[evaluation]
	if b.parent != nil {
		u = u.add(b.parent.Spent(evaluation))
	}
	return u
}

// Charge books a usage. If that would pass a limit, it books nothing: BUDGET_EXCEEDED. A
// negative usage is a VALIDATION_ERROR.
func (b *Budget) Charge(evaluation string, u Usage) error {
	if u.Tokens < 0 || u.MoneyMicros < 0 || u.Calls < 0 {
		return tga.Errorf(tga.ValidationError, "charge of %+v: an amount is negative", u)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var before Usage
	if b.parent != nil {
		before = b.parent.Spent(evaluation)
	}
	next := b.spent[evaluation].add(u)
	if err := b.within(evaluation, before.add(next)); err != nil {
		return err
	}
	b.book(evaluation, next)
	return nil
}

func (b *Budget) book(evaluation string, total Usage) {
	b.spent = maps.Clone(b.spent)
	b.spent[evaluation], b.head = total, nil
}

func (b *Budget) within(evaluation string, u Usage) error {
	for _, c := range []struct {
		what        string
		have, limit int64
	}{
		{"tokens", u.Tokens, b.limit.Tokens},
		{"millionths of money", u.MoneyMicros, b.limit.MoneyMicros},
		{"calls", u.Calls, b.limit.Calls},
	} {
		if c.limit > 0 && c.have > c.limit {
			return tga.Errorf(tga.BudgetExceeded, "evaluation %q: %d %s, at most %d", evaluation, c.have, c.what, c.limit)
		}
	}
	return nil
}

// Admit implements [Admitter]: it charges one call, and refuses it where a limit is
// reached already.
func (b *Budget) Admit(ctx context.Context, _ runtime.Call) error {
	name := Evaluation(ctx)
	at := b.Spent(name)
	if full := b.within(name, Usage{Tokens: at.Tokens + 1, MoneyMicros: at.MoneyMicros + 1}); full != nil {
		return full
	}
	return b.Charge(name, Usage{Calls: 1})
}

// Snapshot implements [Snapshotter]: the node is a JSON object of usages by evaluation.
func (b *Budget) Snapshot(ctx context.Context) (*Node, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.parent == nil && b.head != nil {
		return b.head, nil
	}
	all, err := b.total(ctx)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(all)
	if err != nil {
		return nil, tga.Errorf(tga.GenericStateError, "budget: %w", err)
	}
	n := NewNode(data)
	if b.parent == nil {
		b.head = n
	}
	return n, nil
}

func (b *Budget) total(ctx context.Context) (map[string]Usage, error) {
	if b.parent == nil {
		return b.spent, nil
	}
	n, err := b.parent.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	all, err := usages(n)
	for name, u := range b.spent {
		all[name] = all[name].add(u)
	}
	return all, err
}

func usages(n *Node) (map[string]Usage, error) {
	all := map[string]Usage{}
	if err := strict(n.data, &all); err != nil || len(n.kids) > 0 {
		return all, tga.Errorf(tga.StateChecksumMismatch, "node %s is no budget: %v", n.digest, err)
	}
	return all, nil
}

// Restore implements [Snapshotter].
func (b *Budget) Restore(ctx context.Context, n *Node) error {
	all, err := usages(n)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.parent == nil {
		b.spent, b.head = all, n
		return nil
	}
	// A branch holds what it adds to its parent. A restore that takes spending back gives
	// negative amounts here.
	above, err := b.parent.Snapshot(ctx)
	if err != nil {
		return err
	}
	before, err := usages(above)
	if err != nil {
		return err
	}
	b.spent = map[string]Usage{}
	for name := range before {
		all[name] = all[name].add(Usage{})
	}
	for name, u := range all {
		was := before[name]
		if d := (Usage{u.Tokens - was.Tokens, u.MoneyMicros - was.MoneyMicros, u.Calls - was.Calls}); d != (Usage{}) {
			b.spent[name] = d
		}
	}
	return nil
}

// Branch implements [Brancher].
func (b *Budget) Branch() Branch {
	return &Budget{limit: b.limit, parent: b, spent: map[string]Usage{}}
}

// Check implements [Branch]: BUDGET_EXCEEDED if calls that ran side by side have together
// spent more than the limit.
func (b *Budget) Check(bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, u := range b.spent {
		if err := b.within(name, b.parent.Spent(name).add(u)); err != nil {
			return err
		}
	}
	return nil
}

// Merge implements [Branch].
func (b *Budget) Merge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parent.mu.Lock()
	defer b.parent.mu.Unlock()
	for name, u := range b.spent {
		b.parent.book(name, b.parent.spent[name].add(u))
	}
}
