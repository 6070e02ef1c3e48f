package daemon

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestTargetThatIsNoPath: what a request may ask for besides a path is answered as a path
// that there is none of, and not by the mux in words of its own.
func TestTargetThatIsNoPath(t *testing.T) {
	b := start(t, "")
	for _, line := range []string{"GET *", "OPTIONS *", "CONNECT tgad:80", "GET http://tgad"} {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, line+" HTTP/1.1\r\nHost: tgad\r\nTgad-Client: test\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var p wire.Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != 404 || p.Code != tga.NotFound {
			t.Errorf("%s: %d %s, %v", line, resp.StatusCode, p.Code, err)
		}
	}
}
