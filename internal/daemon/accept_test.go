package daemon

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// crowdSize is how many connections a crowd makes.
const crowdSize = 300

// childCrowd makes crowdSize connections and one request on each of them. It prints how often it
// got each answer, and keeps the connections open until its standard input ends.
func childCrowd() int {
	statuses := map[string]int{}
	for range crowdSize {
		c, err := net.Dial("unix", os.Getenv("SOCKET"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer c.Close()
		status := "closed"
		line := make([]byte, 12)
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: tgad\r\n\r\n"); err == nil {
			if _, err := io.ReadFull(c, line); err == nil {
				status = string(line[9:])
			}
		}
		statuses[status]++
	}
	if err := json.NewEncoder(os.Stdout).Encode(statuses); err != nil {
		return 1
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return 1
	}
	return 0
}

// crowd starts a crowd under a uid and returns the answers that it got. The crowd stays connected until
// the test ends.
func (b *bench) crowd(program string, uid uint32) map[string]int {
	b.t.Helper()
	cmd := b.peerCommand(program, "crowd", uid, peerGID)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			b.t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		b.t.Fatal(err)
	}
	var statuses map[string]int
	if err := json.Unmarshal(line, &statuses); err != nil {
		b.t.Fatal(err)
	}
	return statuses
}

// TestCrowdOfOneUIDHindersNobodyElse: one uid holds as many connections as it may, and a uid without
// a verb tries to hold as many. Calls of other uids still succeed.
func TestCrowdOfOneUIDHindersNobodyElse(t *testing.T) {
	b := startForPeers(t, "[limits]\nconnections = 30\nuid_connections = 8\n")
	program := copyOfTest(t)
	for _, c := range []struct {
		uid    uint32
		served int
	}{{2005, 0}, {2001, 8}, {2003, 8}} {
		got := b.crowd(program, c.uid)
		refused := "429"
		if c.served == 0 {
			refused = "403"
		}
		if got["200"] != c.served || got[refused] == 0 || got["200"]+got[refused]+got["closed"] != crowdSize {
			t.Errorf("a crowd of uid %d was answered %v, want 200 for %d and %s or nothing for the others", c.uid, got, c.served, refused)
		}
		for i := range 5 {
			key := fmt.Sprintf("k%d-%d", c.uid, i)
			if got := b.as(2002, peerGID, []ask{{Method: "POST", Path: "/v1/tool-calls", Body: body(key, 200)}})[0]; got.Status != 200 {
				t.Errorf("beside uid %d, a call of uid 2002 is answered %d %s", c.uid, got.Status, got.Answer)
			}
			if _, err := b.client.Call(t.Context(), charge(key+"-root")); err != nil {
				t.Errorf("beside uid %d, a call of root: %v", c.uid, err)
			}
		}
	}
	if n := b.scrape("tgad_connections_refused_total"); n < 2*(crowdSize-8)+crowdSize {
		t.Errorf("%v connections were counted as turned away", n)
	}
}

// TestPeerWithoutVerbIsToldSo: whatever such a peer requests, the answer says that it has no verb, and
// the connection is closed.
func TestPeerWithoutVerbIsToldSo(t *testing.T) {
	b := startForPeers(t, "")
	for _, path := range []string{"/healthz", "/v1/traces", "/nothing", "//"} {
		got := b.as(2005, peerGID, []ask{{Method: "GET", Path: path}})[0]
		if got.Status != 403 || got.Code != string(tga.PermissionDenied) || !strings.Contains(got.Answer, "uid:2005 has no verb") {
			t.Errorf("GET %s as a peer without a verb: %d %s", path, got.Status, got.Answer)
		}
	}
}

// TestConnectionLimits: the limits in total and of one uid, each at the limit and one past it.
func TestConnectionLimits(t *testing.T) {
	for limits, want := range map[string]string{
		"connections = 3\n":     "there are 3 connections already",
		"uid_connections = 3\n": fmt.Sprintf("uid:%d has 3 connections already", os.Geteuid()),
	} {
		b := start(t, "[limits]\n"+limits)
		b.client.Close()
		get := func() (net.Conn, string) {
			c, err := net.Dial("unix", b.socket)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: tgad\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, 4096)
			n, err := c.Read(answer)
			if err != nil {
				t.Fatal(err)
			}
			return c, string(answer[9:n])
		}
		var open []net.Conn
		for i := range 4 {
			c, answer := get()
			open = append(open, c)
			if i < 3 && !strings.HasPrefix(answer, "200") || i == 3 && (!strings.HasPrefix(answer, "429") || !strings.Contains(answer, want)) {
				t.Errorf("%q: connection %d is answered %.400s", limits, i+1, answer)
			}
		}
		// One that ends makes room. The daemon sees it end in its own time.
		open[0].Close()
		for {
			c, answer := get()
			open = append(open, c)
			if strings.HasPrefix(answer, "200") {
				break
			}
			time.Sleep(time.Millisecond)
		}
		for _, c := range open {
			c.Close()
		}
		b.stop()
	}
}

// TestSilentConnectionsBeyondTheLimitAreClosed: of the refused connections that wait for a request to
// answer, one uid holds only a few, however long it sends nothing.
func TestSilentConnectionsBeyondTheLimitAreClosed(t *testing.T) {
	b := start(t, "[limits]\nuid_connections = 3\n")
	b.client.Close()
	closed := 0
	for range 40 {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			closed++
		}
	}
	// The client's own last connection may take one of the places for a moment.
	if most := 40 - 3 - spareOfUID; closed < most || closed > most+1 {
		t.Errorf("%d of 40 silent connections were closed, want %d: 3 are served and %d wait to be told", closed, most, spareOfUID)
	}
}
