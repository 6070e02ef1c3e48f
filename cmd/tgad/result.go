package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/travel"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/wire"
)

// result prints the result of a call: the tool's answer to stdout, byte for byte, and a line
// about the call to stderr, so that a pipe gets the answer alone. With --json it prints one
// object to stdout. It returns the error of the call, nil if the call COMPLETED.
func (a *app) result(res runtime.Result, err error) error {
	if err != nil {
		return err
	}
	if a.JSON {
		if err := a.message(callMessage(res)); err != nil {
			return err
		}
		return res.Err()
	}
	if len(res.Value) > 0 {
		out := res.Value
		if utf8.Valid(out) && !bytes.HasSuffix(out, []byte("\n")) {
			out = append(out, '\n')
		}
		if err := a.Bytes(out); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintln(a.Err, resultLine(res)) // a comment beside the answer
	return res.Err()
}

func resultLine(res runtime.Result) string {
	line := fmt.Sprintf("trace %s %s seq %d", res.TraceID, res.State, res.Seq)
	switch {
	case !res.ServedFrom.IsZero():
		line += fmt.Sprintf(", served from trace %s", res.ServedFrom)
	case res.Replayed:
		line += ", as recorded"
	case res.Attempts == 1 && res.Sent == 1:
		line += ", sent once"
	case res.Attempts > 0 && res.Sent == 0:
		line += ", not sent"
	case res.Attempts > 0:
		line += fmt.Sprintf(", %d attempts, %d sent", res.Attempts, res.Sent)
	}
	if res.Redacted {
		line += ", redacted"
	}
	if res.ResultBytes > 0 {
		line += fmt.Sprintf(", the answer had %d bytes; only its digest is kept", res.ResultBytes)
	}
	if c := res.Confirmation; c != nil && c.Skipped {
		line += ", confirmed before"
	} else if c != nil {
		line += fmt.Sprintf(", %d of %d changes stand", c.Checked-len(c.Mismatches), c.Checked+c.Unchecked)
	}
	if !res.CompensatedBy.IsZero() {
		line += fmt.Sprintf(", undone by trace %s", res.CompensatedBy)
	}
	return cli.Clean(line)
}

// callMessage returns a result in the form of the protocol.
func callMessage(r runtime.Result) wire.Call {
	c := travel.CallOf(r)
	// --json promises one line. An answer of several lines is encoded.
	if json.Valid(r.Value) && !bytes.ContainsAny(r.Value, "\r\n") {
		c.Result = r.Value
	} else {
		c.ResultBase64 = r.Value
	}
	return c
}

// standing is the error of an open trace as a column shows it.
func standing(p *wire.Problem) string {
	if p == nil {
		return ""
	}
	return string(p.Code)
}

func keyColumn(key string) string { return cli.Shorten(key, 40) }

func tool(server, name string) string { return server + " " + name }
