package daemon

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestLogHasNoGap follows the log while many write, and again from a cursor in the
// middle: every append once, in one order.
func TestLogHasNoGap(t *testing.T) {
	b := start(t, "")
	const writers, calls = 8, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range calls {
				if _, err := b.client.Call(context.Background(), charge(fmt.Sprint("k", w, ".", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var live []wire.LogLine
	entries := 0
	for line, err := range b.client.Log(t.Context(), "", true) {
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, line)
		if entries += len(line.Entries); entries == 4*writers*calls {
			break
		}
	}
	wg.Wait()
	for i, line := range live {
		if line.Cursor != strconv.Itoa(i+1) {
			t.Fatalf("line %d has cursor %s", i+1, line.Cursor)
		}
	}
	middle := len(live) / 2
	rest := live[middle:]
	for line, err := range b.client.Log(t.Context(), live[middle-1].Cursor, false) {
		if err != nil {
			t.Fatal(err)
		}
		if len(rest) == 0 || string(wire.Append(nil, line)) != string(wire.Append(nil, rest[0])) {
			t.Fatalf("line %+v is not the one that was followed", line)
		}
		rest = rest[1:]
	}
	if len(rest) != 0 {
		t.Errorf("%d lines are missing", len(rest))
	}
	for line, err := range b.client.Log(t.Context(), wire.Newest, false) {
		t.Errorf("after the newest: %+v, %v", line, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ { // the first may come before the follower stands
			if _, err := b.client.Call(context.Background(), charge(fmt.Sprint("later", i))); err != nil {
				t.Error(err)
			}
		}
	})
	for line, err := range b.client.Log(ctx, wire.Newest, true) {
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := strconv.Atoi(line.Cursor); n <= len(live) {
			t.Errorf("line %s was there before", line.Cursor)
		}
		break
	}
	stop()
	wg.Wait()
}

// TestStreamBeginsAtOnce: the header of a stream does not wait for its first line, so a client that has it knows that it
// will see what is appended from then on.
func TestStreamBeginsAtOnce(t *testing.T) {
	b := start(t, "")
	for _, path := range []string{"/v1/log?follow=1&after=newest", "/v1/log?follow=1&after=newest&changes=1"} {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(signOfLife / 2)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: tgad\r\nTgad-Client: x\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := b.client.Call(t.Context(), charge(path)); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "cursor") {
			t.Errorf("%s: the first line is %q, %v", path, line, err)
		}
	}
}

// TestFollowATrace sees each entry once, with its artifact byte for byte, and ends with
// the trace.
func TestFollowATrace(t *testing.T) {
	b := start(t, "")
	c := mintChain(t, "k", nil)
	all := []*tga.Artifact{c.request, c.decision, c.call, c.effect}
	lease, err := b.client.Lease(t.Context(), c.trace, 0)
	if err != nil {
		t.Fatal(err)
	}
	add := func(i int) {
		t.Helper()
		if _, err := b.client.Append(t.Context(), c.trace, c.one(lease.Lease, all[i].Type)); err != nil {
			t.Fatal(err)
		}
	}
	add(0)
	n := 0
	for e, err := range b.client.Entries(t.Context(), c.trace, 0, true) {
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Artifact) != string(all[n].Canonical) {
			t.Errorf("entry %d carries %s", n+1, e.Artifact)
		}
		entry, err := tga.DecodeLogEntry(e.Entry)
		if err != nil || entry.Seq != uint64(n+1) {
			t.Errorf("entry %d: %+v %v", n+1, entry, err)
		}
		if n++; n < 4 {
			add(n)
		}
	}
	if n != 4 {
		t.Errorf("%d entries followed", n)
	}
	for e, err := range b.client.Entries(t.Context(), c.trace, 3, true) {
		if entry, decodeErr := tga.DecodeLogEntry(e.Entry); err != nil || decodeErr != nil || entry.Seq != 4 {
			t.Errorf("after 3: %+v %v %v", entry, err, decodeErr)
		}
	}
}

// TestDrainEndsStreams: a stream that is open when the daemon stops says so in its last
// line, and the daemon does not wait for its reader.
func TestDrainEndsStreams(t *testing.T) {
	b := start(t, "")
	if _, err := b.client.Call(t.Context(), charge("k")); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range b.client.Log(t.Context(), "", true) {
		if n++; n == 2 {
			b.cancel()
		}
		if n == 3 {
			wantCode(t, err, tga.StoreUnavailable)
		}
	}
	if n != 3 {
		t.Errorf("%d lines", n)
	}
}

// TestDrainEndsStreamsThatNobodyReads: a client that was stopped reads nothing, and its stream fills the socket. The daemon
// does not wait for it when it stops.
func TestDrainEndsStreamsThatNobodyReads(t *testing.T) {
	for _, path := range []string{"/v1/log?after=0&follow=1", "/v1/log?after=0", "/v1/attachments?kind=stream", "/v1/traces/ID/entries"} {
		b := start(t, "[limits]\ndrain_timeout = \"1h\"\n")
		for i := range 8 {
			c := charge(fmt.Sprint("k", i))
			c.Args = []byte(`{"text":"` + strings.Repeat("x", 100<<10) + `"}`)
			res, err := b.client.Call(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			path = strings.Replace(path, "ID", res.TraceID.String(), 1)
			value := bytes.Repeat([]byte{1}, 60<<10)
			if _, _, err := b.client.Keep(t.Context(), runtime.KeepRequest{Server: "pay", Name: fmt.Sprint("n", i), Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		conn, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: tgad\r\nTgad-Client: stopped\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil { // it has begun
			t.Fatal(err)
		}
		began := time.Now()
		b.stop()
		if took := time.Since(began); took > lineTime/2 {
			t.Errorf("%s: the daemon stopped after %v", path, took)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
