package main

import (
	goruntime "runtime"
	"time"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// chains are the frames of finished traces, in memory.
type chains struct {
	ids    []tga.ID
	frames [][][]byte
	spills [][][]byte
	size   int
}

func newChains(n, size int) (*chains, error) {
	c := &chains{size: size}
	m := load.New(size)
	for range n {
		if err := c.add(m.Next()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *chains) add(t *load.Trace) error {
	begin, err := t.Begin()
	if err != nil {
		return err
	}
	end, err := t.End(c.size)
	if err != nil {
		return err
	}
	state := chain.NewTrace(t.ID)
	var frames, spills [][]byte
	for _, a := range append(begin.Artifacts, end.Artifacts...) {
		made, err := state.Link(a.Artifact, a.Artifact.TS)
		if err != nil {
			return err
		}
		e := chain.Entry{LogEntry: made, Artifact: a.Artifact, Documents: a.Documents, Committed: a.Artifact.TS, Epoch: 1 << 32}
		if err := state.Apply(&e); err != nil {
			return err
		}
		frame, spill := chain.AppendFrame(nil, &e)
		frames, spills = append(frames, frame), append(spills, spill)
	}
	c.ids, c.frames, c.spills = append(c.ids, t.ID), append(c.frames, frames), append(c.spills, spills)
	return nil
}

// verify measures the check of a chain: every frame decoded, every digest and link
// recomputed. Its ratios are to SHA-256 over the same bytes.
func (c *chains) verify() *measure.Subject {
	n := 0
	return &measure.Subject{Case: "verify", Writers: 1, Bytes: c.size, Against: shaCase, Note: "4 entries", Op: func(int) (time.Duration, error) {
		n = (n + 1) % len(c.ids)
		start := time.Now()
		_, err := chain.Replay(c.ids[n], func(yield func(chain.Entry, error) bool) {
			for i, frame := range c.frames[n] {
				e, err := chain.DecodeFrame(frame, func(int64) ([]byte, error) { return c.spills[n][i], nil })
				if !yield(e, err) {
					return
				}
			}
		}, nil)
		return time.Since(start), err
	}}
}

const shaCase = "sha256"

// sha256 measures the digests alone.
func (c *chains) sha256() *measure.Subject {
	n := 0
	return &measure.Subject{Case: shaCase, Writers: 1, Bytes: c.size, Against: shaCase, Note: "4 entries", Op: func(int) (time.Duration, error) {
		n = (n + 1) % len(c.ids)
		start := time.Now()
		var sum tga.Digest
		for i, frame := range c.frames[n] {
			sum = tga.Sum(frame)
			if c.spills[n][i] != nil {
				sum = tga.Sum(c.spills[n][i])
			}
		}
		goruntime.KeepAlive(sum) // or the hashing is no work at all
		return time.Since(start), nil
	}}
}
