package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
)

// signedStore is a store that signs checkpoints.
type signedStore struct {
	*load.Store
	keeper *evidence.Keeper
	signer checkpoint.Signer
}

// signed opens a store whose evidence is kept until the suite ends.
func (s *suite) signed(name string) (*signedStore, error) {
	dir := filepath.Join(s.dir, name)
	signer, err := checkpoint.NewSigner("bench.example/tgad")
	if err != nil {
		return nil, err
	}
	out := &signedStore{signer: signer}
	if out.Store, err = load.OpenStore(dir, 1<<10); err != nil {
		return nil, err
	}
	s.closing(func() error { return out.DB.Close() })
	if out.keeper, err = evidence.Open(context.Background(), out.DB, dir, evidence.Options{Signer: out.signer, Every: time.Second}); err != nil {
		return nil, err
	}
	s.closing(out.keeper.Close)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out.keeper.Run(ctx)
	}()
	s.closing(func() error { end(); <-ended; return nil })
	return out, nil
}

// appendSigned adds the case append in a store that keeps evidence, to compare with the same case
// without evidence.
func (s *suite) appendSigned() error {
	points := []point{{1, 1 << 10}, {64, 1 << 10}}
	if !s.anyOf("append_signed", points) {
		return nil
	}
	db, err := s.signed("signed")
	if err != nil {
		return err
	}
	for _, p := range points {
		subject := db.Append(p.writers)
		subject.Case = "append_signed"
		s.add(subject)
	}
	return nil
}

// mostProved is the largest number of traces of one evidence file.
const mostProved = 10_000

// evidence adds the cases about proofs for a store with so many finished traces.
func (s *suite) evidence(traces int) error {
	if !s.any("receipt", "evidence_file", "evidence_verify", "evidence_checkpoint") {
		return nil
	}
	db, err := s.signed("proved")
	if err == nil {
		err = db.Fill(traces, true)
	}
	if err != nil {
		return err
	}
	for db.keeper.Signed() < int64(db.DB.Cursor()) {
		time.Sleep(10 * time.Millisecond)
	}
	ids := make([]tga.ID, 0, traces)
	for l, err := range db.DB.Traces(context.Background(), tga.ID{}) {
		if err != nil {
			return err
		}
		ids = append(ids, l.TraceID)
	}
	receipt := &measure.Subject{Case: "receipt", Writers: 1, Bytes: 1 << 10, Against: nothing, Note: fmt.Sprintf("of one of %d traces", len(ids))}
	receipt.Op = func(int) (time.Duration, error) {
		start := time.Now()
		_, err := db.keeper.Receipt(context.Background(), ids[rand.IntN(len(ids))])
		return time.Since(start), err
	}
	var file bytes.Buffer
	write := once("evidence_file", 1<<10, traces, func() (time.Duration, string, error) {
		file.Reset()
		start := time.Now()
		err := db.export(&file)
		return time.Since(start), fmt.Sprintf("%d traces, %d KiB each", traces, file.Len()/traces>>10), err
	})
	verify := once("evidence_verify", 1<<10, traces, func() (time.Duration, string, error) {
		if file.Len() == 0 { // the case before was not wanted
			if err := db.export(&file); err != nil {
				return 0, "", err
			}
		}
		start := time.Now()
		report, err := bundle.Verify(bytes.NewReader(file.Bytes()), bundle.Trust{Key: db.signer.Public})
		took := time.Since(start)
		if err == nil && (report.Verdict() != bundle.Proved || len(report.Traces) != traces) {
			err = fmt.Errorf("%s, %d traces", report.Verdict(), len(report.Traces))
		}
		return took, fmt.Sprintf("%d traces", traces), err
	})
	sign, err := s.checkpoints(db.signer)
	if err != nil {
		return err
	}
	s.add(receipt, write, verify, sign)
	return nil
}

// checkpoints measures the signing and the durable writing of a checkpoint.
func (s *suite) checkpoints(signer checkpoint.Signer) (*measure.Subject, error) {
	kept, err := checkpoint.OpenFile(vfs.Default, s.dir)
	if err != nil {
		return nil, err
	}
	s.closing(kept.Close)
	subject := &measure.Subject{Case: "evidence_checkpoint", Writers: 1, Bytes: 1 << 10}
	c := checkpoint.Checkpoint{Origin: signer.Name()}
	subject.Op = func(int) (time.Duration, error) {
		c.Size++
		c.Head = tlog.Hash(tga.Sum([]byte(c.Text())))
		start := time.Now()
		raw, err := c.Sign(signer)
		if err == nil {
			err = kept.Append(raw)
		}
		return time.Since(start), err
	}
	return subject, nil
}

func (d *signedStore) export(w io.Writer) error {
	ctx := context.Background()
	return d.keeper.Export(ctx, w, evidence.Wanted{}, func(w io.Writer, ids []tga.ID) error {
		for _, id := range ids {
			if err := ndjson.Write(w, id, d.DB.Entries(ctx, id, 0), d.DB.Notes(ctx, id, 0)); err != nil {
				return err
			}
		}
		return nil
	})
}
