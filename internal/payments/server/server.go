//go:build unix

// Package server is a payments tool server: MCP on stdin and stdout, no network. It
// charges accounts by writing to its own journal and keeps no other state, so that it
// may be killed at any moment.
//
// Tools:
//
//	charge         {account, amount, memo?, delay_ms?}  honours the idempotency key, across restarts
//	charge_opaque  the same                             ignores keys: every call is a charge
//	balance        {account}                            what the account was charged
//	lookup         {tool, key}                          whether a call with this key has charged
//
// The key is `_meta["dev.tgad/idempotencyKey"]`. Amounts are integers in minor units.
package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/internal/payments/journal"
)

// Main runs the server, or prints the counts of a journal, and returns the exit code:
// 0, 1 after an error, 2 for wrong usage.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "journal" {
		return printCounts(args[1:], stdout, stderr)
	}
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("journal", "", "append-only `file` that remembers what was charged")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: payments --journal FILE     MCP on stdin and stdout\n       payments journal FILE       print the counts of a journal")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *path == "" || flags.NArg() > 0 {
		flags.Usage()
		return 2
	}
	if err := Serve(context.Background(), *path, stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "payments:", err)
		return 1
	}
	return 0
}

func printCounts(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "usage: payments journal FILE")
		return 2
	}
	sum, err := journal.Read(args[0])
	if err == nil {
		err = json.NewEncoder(stdout).Encode(sum.Report())
	}
	if err != nil {
		fmt.Fprintln(stderr, "payments:", err)
		return 1
	}
	return 0
}

// Serve speaks MCP until in ends.
func Serve(ctx context.Context, path string, in io.Reader, out io.Writer) error {
	j, err := journal.Open(path)
	if err != nil {
		return err
	}
	s := New(j)
	err = s.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(in), Writer: nopCloser{out}})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// New returns the MCP server over a journal, for any transport.
func New(j *journal.Journal) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "payments", Version: "1"},
		&mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	p := &payments{j: j}
	const chargeSchema = `{"type":"object","properties":{` +
		`"account":{"type":"string","minLength":1,"maxLength":64},` +
		`"amount":{"type":"integer","minimum":1,"description":"minor units"},` +
		`"memo":{"type":"string","maxLength":200},` +
		`"delay_ms":{"type":"integer","minimum":0,"maximum":60000,"description":"wait between the charge and the answer"}},` +
		`"required":["account","amount"],"additionalProperties":false}`
	no := false
	for _, t := range []struct {
		tool   mcp.Tool
		schema string
		run    func(context.Context, call) (any, error)
	}{
		{mcp.Tool{
			Name: "charge", Description: "Charge an account. A repeated idempotency key gets the first answer.",
			Annotations: &mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no},
		}, chargeSchema, p.charge},
		{mcp.Tool{
			Name: "charge_opaque", Description: "Charge an account, every time.",
			Annotations: &mcp.ToolAnnotations{OpenWorldHint: &no},
		}, chargeSchema, p.charge},
		{mcp.Tool{
			Name: "balance", Description: "What an account was charged.",
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no},
		}, `{"type":"object","properties":{"account":{"type":"string"}},"required":["account"],"additionalProperties":false}`, p.balance},
		{mcp.Tool{
			Name: "lookup", Description: "Whether a call with this idempotency key charged.",
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no},
		}, `{"type":"object","properties":{"tool":{"enum":["charge","charge_opaque"]},"key":{"type":"string"}},"required":["tool","key"],"additionalProperties":false}`, p.lookup},
	} {
		tool := t.tool
		tool.InputSchema = json.RawMessage(t.schema)
		s.AddTool(&tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			key, _ := req.Params.Meta["dev.tgad/idempotencyKey"].(string)
			v, err := t.run(ctx, call{tool: req.Params.Name, key: key, args: req.Params.Arguments})
			return result(v, err)
		})
	}
	return s
}

// result puts an answer into both forms that MCP has. An error becomes an error of the tool,
// whose text says that nothing was charged, or leaves that open.
func result(v any, err error) (*mcp.CallToolResult, error) {
	if err != nil {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{
		StructuredContent: json.RawMessage(b),
		Content:           []mcp.Content{&mcp.TextContent{Text: string(b)}},
	}, nil
}

const maxDelay = time.Minute

var errArguments = errors.New("bad arguments; nothing was charged")

type payments struct{ j *journal.Journal }

type call struct {
	tool, key string
	args      json.RawMessage
}

func (c call) decode(into any) error {
	d := json.NewDecoder(bytes.NewReader(c.args))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %v", errArguments, err)
	}
	return nil
}

// Receipt is the answer to a charge. It depends only on the charge's record, so a repeated
// key gets the same answer after any restart.
type Receipt struct {
	Charge  uint64 `json:"charge"` // number of the charge
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

func receipt(r journal.Record) Receipt {
	return Receipt{Charge: r.N, Account: r.Account, Amount: r.Amount}
}

func (p *payments) charge(ctx context.Context, c call) (any, error) {
	var args struct {
		Account string `json:"account"`
		Amount  int64  `json:"amount"`
		Memo    string `json:"memo"`
		DelayMS int64  `json:"delay_ms"`
	}
	if err := c.decode(&args); err != nil {
		return nil, err
	}
	delay := time.Duration(args.DelayMS) * time.Millisecond
	if args.Account == "" || len(args.Account) > 64 || args.Amount < 1 || args.DelayMS < 0 || delay > maxDelay || len(args.Memo) > 200 {
		return nil, errArguments
	}
	rec := journal.Record{Op: journal.Received, Tool: c.tool, Key: c.key, Amount: args.Amount, Account: args.Account}
	// Sync the reception separately, before the decision: a call during which the server
	// dies is then still counted as received.
	if err := p.j.Update(func(tx *journal.Tx) error {
		rec.N = tx.Summary().Total().Received + 1
		return tx.Append(rec)
	}); err != nil {
		return nil, err
	}
	var done Receipt
	err := p.j.Update(func(tx *journal.Tx) error {
		r, err := settle(tx, rec)
		done = receipt(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return done, nil
}

// settle makes the charge, or finds the charge that was already made under the key.
func settle(tx *journal.Tx, rec journal.Record) (journal.Record, error) {
	sum := tx.Summary()
	if rec.Tool == "charge" && rec.Key != "" {
		first, ok := sum.First(journal.Call{Tool: rec.Tool, Key: rec.Key})
		if ok && (first.Amount != rec.Amount || first.Account != rec.Account) {
			return first, errors.New("the key was used for another charge; nothing was charged")
		}
		if ok {
			rec.Op, rec.N = journal.Repeated, first.N
			return first, tx.Append(rec)
		}
	}
	if sum.Balance(rec.Account) > math.MaxInt64-rec.Amount {
		return rec, errors.New("the account cannot hold so much; nothing was charged")
	}
	rec.Op, rec.N = journal.Charged, sum.Total().Charges+1
	return rec, tx.Append(rec)
}

func (p *payments) balance(_ context.Context, c call) (any, error) {
	var args struct {
		Account string `json:"account"`
	}
	if err := c.decode(&args); err != nil {
		return nil, err
	}
	var b int64
	err := p.j.Update(func(tx *journal.Tx) error {
		b = tx.Summary().Balance(args.Account)
		return nil
	})
	return map[string]any{"account": args.Account, "balance": b}, err
}

func (p *payments) lookup(_ context.Context, c call) (any, error) {
	var args struct {
		Tool string `json:"tool"`
		Key  string `json:"key"`
	}
	if err := c.decode(&args); err != nil {
		return nil, err
	}
	if args.Key == "" {
		return nil, errArguments
	}
	var answer struct {
		Ran     bool     `json:"ran"`
		Receipt *Receipt `json:"receipt,omitempty"`
	}
	err := p.j.Update(func(tx *journal.Tx) error {
		if r, ok := tx.Summary().First(journal.Call{Tool: args.Tool, Key: args.Key}); ok {
			done := receipt(r)
			answer.Ran, answer.Receipt = true, &done
		}
		return nil
	})
	return answer, err
}
