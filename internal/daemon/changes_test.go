package daemon

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestChangesAreToldAndNothingElse: a follower of changes gets few lines, however many appends there are,
// and the last line covers the last append.
func TestChangesAreToldAndNothingElse(t *testing.T) {
	b := start(t, "")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var last atomic.Value
	last.Store("")
	go func() {
		defer stop()
		for b.scrape("tgad_streams") == 0 {
			time.Sleep(time.Millisecond)
		}
		for i := range 200 {
			if _, err := b.client.Call(context.Background(), charge(fmt.Sprint("k", i))); err != nil {
				t.Error(err)
			}
		}
		want := newest(t, b)
		for end := time.Now().Add(20 * time.Second); last.Load() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("told of %s, and never of %s", last.Load(), want)
				return
			}
		}
	}()
	began, told := time.Now(), 0
	for cursor, err := range b.client.Changes(ctx) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		told++
		last.Store(cursor)
	}
	if most := int(time.Since(began)/changesEvery) + 2; told > most || told < 2 {
		t.Errorf("told %d times in %s, want at most %d and at least 2", told, time.Since(began), most)
	}
}

// newest is the cursor of the newest append.
func newest(t *testing.T, b *bench) (cursor string) {
	for line, err := range b.client.Log(context.Background(), "", false) {
		if err != nil {
			t.Error(err)
			break
		}
		cursor = line.Cursor
	}
	return cursor
}

// TestLineOfAChangeHasACursorAlone reads what goes over the socket.
func TestLineOfAChangeHasACursorAlone(t *testing.T) {
	b := start(t, "")
	for _, c := range []struct {
		path string
		want string
	}{
		{"/v1/log?changes=1", `"code":"VALIDATION_ERROR"`},
		{"/v1/log?changes=x&follow=1", `"code":"VALIDATION_ERROR"`},
		{"/v1/log?changes=1&follow=1&after=9", `"code":"VALIDATION_ERROR"`},
	} {
		if _, _, answer := b.raw("GET", c.path, ""); !strings.Contains(string(answer), c.want) {
			t.Errorf("%s: %s, want %s", c.path, answer, c.want)
		}
	}
	if got := string(wire.Append(nil, wire.LogLine{Cursor: strconv.Itoa(7)})); got != `{"cursor":"7"}` {
		t.Error(got)
	}
}

// TestChangesOfOthersAreNotTold: a peer of one namespace gets no line about appends of another namespace.
func TestChangesOfOthersAreNotTold(t *testing.T) {
	for namespace, want := range map[string]bool{"other": true, tga.DefaultNamespace: false} {
		b := startForPeers(t, "")
		heard := make(chan ask, 1)
		go func() {
			heard <- b.as(2007, peerGID, []ask{{Method: "GET", Path: "/v1/log?follow=1&changes=1&after=newest"}})[0]
		}()
		for i := 0; ; i++ {
			req := charge(fmt.Sprint("k", i))
			req.Namespace = namespace
			if _, err := b.client.Call(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if b.scrape("tgad_streams") == 1 {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		req := charge("last")
		req.Namespace = namespace
		if _, err := b.client.Call(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * changesEvery)
		b.cancel()
		a := <-heard
		if got := strings.Contains(a.Answer, `"cursor"`); got != want {
			t.Errorf("%s: told %v, want %v: %s", namespace, got, want, a.Answer)
		}
	}
}
