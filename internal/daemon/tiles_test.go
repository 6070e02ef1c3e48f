package daemon

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/serial"
)

// reader reads the tiles of a log over HTTP as any client of C2SP tlog-tiles does: package tlog
// knows nothing of tgad.
type reader struct {
	b    *bench
	read []string
}

func (r *reader) Height() int                     { return 8 }
func (r *reader) SaveTiles([]tlog.Tile, [][]byte) {}

func (r *reader) ReadTiles(tiles []tlog.Tile) (out [][]byte, err error) {
	for _, tile := range tiles {
		path := strings.Replace("/"+tile.Path(), "/tile/8/", "/tile/", 1)
		status, _, raw := r.b.raw("GET", path, "", "Tgad-Client", "")
		if status != http.StatusOK {
			return nil, fmt.Errorf("%s: %d %s", path, status, raw)
		}
		r.read, out = append(r.read, path), append(out, raw)
	}
	return out, nil
}

// TestTilesAreReadByAnotherClient: package tlog, given the signed checkpoint and the tiles alone,
// finds the hash of every append, and the leaves are those that have these hashes.
func TestTilesAreReadByAnotherClient(t *testing.T) {
	serial.Test(t)
	b, public, _ := signing(t)
	b.start()
	if status, _, answer := b.raw("GET", "/checkpoint", ""); status != http.StatusNotFound {
		t.Errorf("before anything was signed: %d %s", status, answer)
	}
	for i := range 130 {
		if _, err := b.client.Call(t.Context(), charge(fmt.Sprint("r", i))); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := checkpoint.TrustKeys("", public)
	if err != nil {
		t.Fatal(err)
	}
	var c checkpoint.Checkpoint
	for end := time.Now().Add(time.Minute); c.Size < 260; time.Sleep(5 * time.Millisecond) { // two appends a call
		_, header, raw := b.raw("GET", "/checkpoint", "", "Tgad-Client", "")
		if c, _, err = keys.Open(raw); err != nil || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") || time.Now().After(end) {
			t.Fatalf("%s, %v, %v", raw, header, err)
		}
	}
	r := &reader{b: b}
	hashes := tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Head}, r)
	for first := int64(0); first < c.Size; first += 256 {
		number := fmt.Sprintf("%03d", first/256)
		if c.Size < first+256 {
			number += fmt.Sprintf(".p/%d", c.Size-first)
		}
		status, header, raw := b.raw("GET", "/tile/entries/"+number, "")
		if status != http.StatusOK || !strings.Contains(header.Get("Cache-Control"), "immutable") {
			t.Fatalf("%d %s", status, raw)
		}
		for i := first; i < min(c.Size, first+256); i++ {
			n := binary.BigEndian.Uint16(raw)
			leaf := raw[2 : 2+n]
			raw = raw[2+n:]
			want, err := hashes.ReadHashes([]int64{tlog.StoredHashIndex(0, i)})
			if err != nil || want[0] != tlog.RecordHash(leaf) {
				t.Fatalf("leaf %d has another hash: %v", i, err)
			}
		}
		if len(raw) != 0 {
			t.Errorf("%d bytes behind the leaves from %d on", len(raw), first)
		}
	}
	if read := strings.Join(r.read, " "); !strings.Contains(read, "/tile/0/000 ") || !strings.Contains(read, "/tile/1/000.p/1") {
		t.Errorf("it read %s", read)
	}
	for path, want := range map[string]int{
		"/tile/0/001.p/1": http.StatusOK, "/tile/1/000.p/1": http.StatusOK, "/tile/entries/000.p/1": http.StatusOK, // a part of what is there
		"/tile/0/002": 404, "/tile/0/001": 404, "/tile/0/001.p/255": 404, "/tile/1/000": 404, "/tile/1/000.p/2": 404, "/tile/2/000.p/1": 404, "/tile/entries/001": 404,
		"/tile/7/000.p/1": 404, "/tile/0/0": 404, "/tile/0/x000": 404, "/tile/0/x000/000": 404, "/tile/0/000.p/0": 404, "/tile/0/000.p/256": 404, "/tile/0/000.p/01": 404,
		"/tile/data/000": 404, "/tile/00/000": 404, "/tile/-1/000": 404, "/tile/0/": 404, "/tile/0": 404, "/tile/": 404, "/tile/0/x999/x999/x999/x999/x999/x999/999": 404,
	} {
		if status, _, answer := b.raw("GET", path, ""); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, answer, want)
		}
	}
}

// TestLeavesAreForWhoSeesEverything: hashes name nobody's trace, leaves name all of them.
func TestLeavesAreForWhoSeesEverything(t *testing.T) {
	config, _, _ := signs(t)
	b := startForPeers(t, config)
	res, err := b.client.Call(t.Context(), charge("r1"))
	if err != nil {
		t.Fatal(err)
	}
	b.receipt(res.TraceID)
	asks := []ask{{Method: "GET", Path: "/checkpoint"}, {Method: "GET", Path: "/tile/0/000.p/1"}, {Method: "GET", Path: "/tile/entries/000.p/1"}}
	for i, got := range b.as(2001, peerGID, asks) { // it reads one namespace
		if want := []int{http.StatusOK, http.StatusOK, http.StatusForbidden}[i]; got.Status != want {
			t.Errorf("%s: %d %s, want %d", asks[i].Path, got.Status, got.Answer, want)
		}
	}
}
