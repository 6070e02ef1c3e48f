package postgres

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// flush commits the statements if there are many of them, or if all is set because no more follow.
func (c *copier) flush(ctx context.Context, b *pgx.Batch, all bool) (*pgx.Batch, error) {
	if b.Len() == 0 || !all && b.Len() < copyPage {
		return b, nil
	}
	return &pgx.Batch{}, pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error { return tx.SendBatch(ctx, b).Close() })
}

// heads writes the head of each trace, and its newest checkpoint.
func (c *copier) heads(ctx context.Context) error {
	b := &pgx.Batch{}
	for l, err := range c.Traces(ctx, tga.ID{}) {
		if err == nil {
			err = l.Err // a trace that cannot be read cannot be copied
		}
		if err != nil {
			return err
		}
		t, err := c.Load(ctx, l.TraceID)
		if err != nil {
			return err
		}
		if t.Key != 0 && t.Request != nil { // otherwise the key is destroyed
			c.used[t.Key] = true
		}
		var epoch chain.Epoch
		for e, err := range c.Entries(ctx, l.TraceID, t.Head.Seq-1) {
			if err != nil {
				return err
			}
			epoch = e.Epoch
		}
		b.Queue(`INSERT INTO tgad.heads (shard, trace, version, seq, digest, note, note_digest, state, epoch, session, token, namespace, since, deadline)
			VALUES ($1, $2, 1, $3, $4, $5, $6, $7, $8, 0, 0, $9, $10, $11) ON CONFLICT (shard, trace) DO UPDATE SET seq = excluded.seq, digest = excluded.digest,
			note = excluded.note, note_digest = excluded.note_digest, state = excluded.state, epoch = excluded.epoch, namespace = excluded.namespace,
			since = excluded.since, deadline = excluded.deadline`, c.o.Shard, [16]byte(t.ID), int64(t.Head.Seq), t.Head.Digest[:], int64(t.NoteHead.Number), t.NoteHead.Digest[:],
			int16(t.Head.State), int64(epoch), t.Namespace, int64(l.Since), int64(t.Deadline))
		cp, ok, err := c.LatestCheckpoint(ctx, t.ID)
		if err != nil {
			return err
		}
		if ok {
			b.Queue("INSERT INTO tgad.checkpoints VALUES ($1, $2, $3, $4) ON CONFLICT (shard, trace, seq) DO UPDATE SET body = excluded.body",
				c.o.Shard, [16]byte(t.ID), int64(cp.Seq), cp.AppendCanonical(nil))
		}
		if b, err = c.flush(ctx, b, false); err != nil {
			return err
		}
	}
	_, err := c.flush(ctx, b, true)
	return err
}

// records copies the ledger.
func (c *copier) records(ctx context.Context) error {
	b := &pgx.Batch{}
	err := c.Records(ctx, func(hash [32]byte, record []byte) (err error) {
		b.Queue("INSERT INTO tgad.ledger VALUES ($1, $2, $3) ON CONFLICT (shard, hash) DO UPDATE SET record = excluded.record", c.o.Shard, hash[:], record)
		b, err = c.flush(ctx, b, false)
		return err
	})
	if err == nil {
		_, err = c.flush(ctx, b, true)
	}
	return err
}

// attachments copies the values that were written with appends. It first deletes the values of an
// earlier run, because the source may have deleted some of them since.
func (c *copier) attachments(ctx context.Context) error {
	b := &pgx.Batch{}
	b.Queue("DELETE FROM tgad.attachments WHERE shard = $1", c.o.Shard)
	b.Queue("DELETE FROM tgad.owner_keys WHERE shard = $1", c.o.Shard)
	for _, kind := range chain.AttachmentKinds {
		for a, err := range c.Stored(ctx, kind, nil) {
			if err != nil {
				return err
			}
			if key := sealrules.KeyOf(a.Value); key != 0 {
				c.used[key] = true
				c.owns(b, sealrules.OwnerOf(&a), key)
			}
			b.Queue("INSERT INTO tgad.attachments VALUES ($1, $2, $3, $4)", c.o.Shard, int16(kind), a.Key, a.Value)
			if b, err = c.flush(ctx, b, false); err != nil {
				return err
			}
		}
	}
	_, err := c.flush(ctx, b, true)
	return err
}

// sealed refuses a source that is not sealed under the key ring of the copy. It runs before anything is written.
func (c *copier) sealed(context.Context) error {
	c.used = map[chain.KeyID]bool{}
	c.under.Ring, c.under.Keyed = c.SealedUnder()
	switch ring := c.o.Keyring; {
	case c.under.Ring.IsZero() && ring != nil:
		return tga.Errorf(tga.ValidationError, "copy: store %s is not sealed, and the copy would be: copy it without [keyring]", c.ID)
	case c.under.Ring.IsZero():
		return nil
	case ring == nil:
		return tga.Errorf(tga.StoreUnavailable, "copy: store %s is sealed under key ring %s: name that ring in [keyring]", c.ID, c.under.Ring)
	}
	return c.under.Fits(c.o.Keyring, "copy of store "+c.ID.String())
}

// owns stores under which key an owner's values are sealed.
func (c *copier) owns(b *pgx.Batch, o sealrules.Owner, key chain.KeyID) {
	if o.ID != nil {
		b.Queue("INSERT INTO tgad.owner_keys VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", c.o.Shard, []byte(o.Name()), int64(key))
	}
}

// dataKeys stores the marks of the keys of all copied values, and of the keys of owners that have no values now.
func (c *copier) dataKeys(ctx context.Context) error {
	if c.under.Ring.IsZero() {
		return nil
	}
	b := &pgx.Batch{}
	if err := c.OwnerKeys(ctx, func(kind byte, id []byte, keys []chain.KeyID) error {
		for _, key := range keys {
			c.used[key] = true
			c.owns(b, sealrules.Owner{Kind: keyspace.Kind(kind), ID: id}, key)
		}
		return nil
	}); err != nil {
		return err
	}
	blocks := map[chain.KeyID][]chain.KeyID{}
	for key := range c.used {
		block := (key - 1) / keyBlock
		blocks[block] = append(blocks[block], key)
	}
	for block, keys := range blocks {
		numbers, marks, err := marksOf(c.o.Keyring, block, keys)
		if err != nil {
			return err
		}
		b.Queue("SELECT tgad.know_keys($1, $2, $3)", c.o.Shard, numbersOf(numbers), marks)
	}
	_, err := c.flush(ctx, b, true)
	return err
}

// evidence copies the signed notes of the source. Notes of an earlier run must be the first of them, because a kept note is never
// replaced.
func (c *copier) evidence(ctx context.Context) error {
	rows, err := c.conn.Query(ctx, "SELECT note FROM tgad.signed_notes WHERE shard = $1 ORDER BY number", c.o.Shard)
	if err != nil {
		return err
	}
	kept, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	for i, n := range c.Evidence {
		switch {
		case i >= len(kept):
			b.Queue("INSERT INTO tgad.signed_notes VALUES ($1, $2, $3, $4, 0, $5)", c.o.Shard, int64(i)+1, int16(n.Kind), n.Size, n.Note)
		case !bytes.Equal(kept[i], n.Note):
			return tga.Errorf(tga.StateChecksumMismatch, "note %d of the evidence is another than in the source, which has signed since: copy into an empty database", i+1)
		}
		if n.Key != "" {
			b.Queue("INSERT INTO tgad.meta VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", c.o.Shard, keyName, []byte(n.Key))
		}
		if b, err = c.flush(ctx, b, false); err != nil {
			return err
		}
	}
	_, err = c.flush(ctx, b, true)
	return err
}

// kept copies the kept state of duties.
func (c *copier) kept(ctx context.Context) error {
	b := &pgx.Batch{}
	for name, kept := range c.Kept {
		b.Queue("INSERT INTO tgad.duties (shard, duty, epoch, session, kept) VALUES ($1, $2, 0, 0, $3) ON CONFLICT (shard, duty) DO UPDATE SET kept = excluded.kept", c.o.Shard, name, kept)
	}
	_, err := c.flush(ctx, b, true)
	return err
}

// compare opens the copy like any other store, checks all of it, and compares it with its source.
func (c *copier) compare(ctx context.Context) (err error) {
	s, err := Open(ctx, c.dsn, c.o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rep, err := s.Fleet().Check(ctx)
	if err != nil {
		return err
	}
	if len(rep.Problems) > 0 {
		return tga.Errorf(tga.StateChecksumMismatch, "the copy has %d faults, the first: %w", len(rep.Problems), rep.Problems[0].Err)
	}
	c.done.Appends = c.Cursor()
	if uint64(rep.Leaves) != c.Cursor() {
		return tga.Errorf(tga.StateChecksumMismatch, "the copy has %d appends, the source %d", rep.Leaves, c.Cursor())
	}
	for l, err := range c.Traces(ctx, tga.ID{}) {
		if err == nil {
			err = c.same(ctx, s, l.TraceID)
		}
		if err != nil {
			return err
		}
	}
	if err := c.Records(ctx, func(hash [32]byte, record []byte) error {
		c.done.Records++
		got, err := s.readRecord(ctx, hash)
		if err == nil && !bytes.Equal(got, record) {
			err = tga.Errorf(tga.StateChecksumMismatch, "the ledger record of key %x is %x in the copy, and %x in the source", hash, got, record)
		}
		return err
	}); err != nil {
		return err
	}
	for _, kind := range chain.AttachmentKinds {
		n, err := equal(c.Attachments(ctx, kind, nil), s.Attachments(ctx, kind, nil), func(a, b chain.Attachment) bool { return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) })
		if err != nil {
			return tga.Errorf(tga.StateChecksumMismatch, "attachments of kind %c: %w", kind, err)
		}
		c.done.Rows += n
	}
	if c.Compare != nil {
		if err := c.Compare(ctx, s); err != nil {
			return err
		}
	}
	if rep.Traces != c.done.Traces || rep.Records != c.done.Records || rep.Entries != c.done.Entries || rep.Notes != c.done.Notes {
		return tga.Errorf(tga.StateChecksumMismatch, "the copy has %d traces, %d entries, %d notes and %d ledger records; the source has %d, %d, %d and %d",
			rep.Traces, rep.Entries, rep.Notes, rep.Records, c.done.Traces, c.done.Entries, c.done.Notes, c.done.Records)
	}
	return nil
}

// same compares one trace.
func (c *copier) same(ctx context.Context, s *Store, id tga.ID) error {
	n, err := equal(c.Entries(ctx, id, 0), s.Entries(ctx, id, 0), func(a, b chain.Entry) bool {
		x, xs := chain.AppendFrame(nil, &a)
		y, ys := chain.AppendFrame(nil, &b)
		return bytes.Equal(x, y) && bytes.Equal(xs, ys)
	})
	if err != nil {
		return tga.Errorf(tga.StateChecksumMismatch, "entries of trace %s: %w", id, err).In(id)
	}
	was, err := c.Load(ctx, id)
	if err != nil {
		return err
	}
	is, err := s.Load(ctx, id)
	if err != nil {
		return err
	}
	if was.Head != is.Head || was.NoteHead != is.NoteHead || was.Namespace != is.Namespace {
		return tga.Errorf(tga.StateChecksumMismatch, "trace %s ends otherwise in the copy", id).In(id)
	}
	c.done.Traces++
	c.done.Entries += n
	c.done.Notes += len(was.Notes)
	return nil
}

// equal compares two lists, and returns the number of their members.
func equal[T any](a, b iter.Seq2[T, error], same func(T, T) bool) (n int, err error) {
	next, stop := iter.Pull2(b)
	defer stop()
	for x, err := range a {
		if err != nil {
			return n, err
		}
		y, err, ok := next()
		switch {
		case err != nil:
			return n, err
		case !ok || !same(x, y):
			return n, tga.Errorf(tga.StateChecksumMismatch, "number %d is another in the copy, or is not there", n+1)
		}
		n++
	}
	_, err, ok := next()
	if ok && err == nil {
		err = tga.Errorf(tga.StateChecksumMismatch, "the copy has more than %d", n)
	}
	return n, err
}
