package monitor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
)

// made is a log whose leaves are their numbers. It answers with its tiles.
type made struct {
	hashes []tlog.Hash
	spoil  func(path string, tile []byte) []byte
}

func newMade(f *testing.F, size int64) *made {
	m := &made{}
	for i := range size {
		h, err := tlog.StoredHashes(i, binary.BigEndian.AppendUint64(nil, uint64(i)), m)
		if err != nil {
			f.Fatal(err)
		}
		m.hashes = append(m.hashes, h...)
	}
	return m
}

func (m *made) ReadHashes(at []int64) (out []tlog.Hash, err error) {
	for _, i := range at {
		out = append(out, m.hashes[i])
	}
	return out, nil
}

func (m *made) Checkpoint(context.Context) ([]byte, [][]byte, error) {
	return nil, nil, errors.New("none")
}
func (m *made) Evidence(context.Context, io.Writer, int64, int64, []byte) error {
	return errors.New("none")
}

func (m *made) Tile(_ context.Context, path string) ([]byte, error) {
	tile, err := tlog.ParseTilePath("tile/8/" + path[len("tile/"):])
	if err != nil {
		return nil, err
	}
	raw, err := tlog.ReadTileData(tile, m)
	return m.spoil(path, raw), err
}

// FuzzTile: for any bytes of a tile, the computed head is that of the tree, or the store is accused.
func FuzzTile(f *testing.F) {
	const size = 700
	m := newMade(f, size)
	head, err := tlog.TreeHash(size, m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(300), uint8(0), []byte(nil), uint16(0))
	f.Add(uint16(256), uint8(1), make([]byte, 32), uint16(32))
	f.Add(uint16(1), uint8(0), make([]byte, 8192), uint16(0))
	f.Fuzz(func(t *testing.T, old uint16, which uint8, piece []byte, at uint16) {
		want := int64(old)%size + 1
		n := 0
		m.spoil = func(_ string, tile []byte) []byte {
			if n++; n-1 != int(which%8) {
				return tile
			}
			if len(piece)%2 == 1 { // its length differs
				return piece
			}
			return append(append(bytes.Clone(tile[:min(int(at), len(tile))]), piece...), tile[min(int(at)+len(piece), len(tile)):]...)
		}
		mon := &Monitor{from: m, state: state{size: size, head: head}}
		got, err := mon.headOf(t.Context(), want)
		var a *Alarm
		if err != nil {
			if !errors.As(err, &a) || a.Code != tga.StateChecksumMismatch {
				t.Errorf("%v", err)
			}
			return
		}
		if right, err := tlog.TreeHash(want, m); err != nil || got != right {
			t.Errorf("the head of %d is %v, computed %v", want, right, got)
		}
	})
}
