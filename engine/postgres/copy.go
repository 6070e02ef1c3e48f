package postgres

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Source is a store that is copied. Nobody may append to it meanwhile. engine.DB is a Source.
type Source interface {
	Cursor() uint64
	Follow(ctx context.Context, after uint64) iter.Seq2[chain.Leaf, error]
	Traces(ctx context.Context, after tga.ID) iter.Seq2[chain.Listed, error]
	Load(ctx context.Context, trace tga.ID) (*chain.Trace, error)
	Entries(ctx context.Context, trace tga.ID, after uint64) iter.Seq2[chain.Entry, error]
	LatestCheckpoint(ctx context.Context, trace tga.ID) (cp tga.Checkpoint, ok bool, err error)
	Records(ctx context.Context, each func(hash [32]byte, record []byte) error) error
	Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error]
	Secret() [32]byte
	// SealedUnder returns the id of the key ring under which the store is sealed, zero if there is none, and whether the digests
	// in the ledger are keyed by the ring's secret.
	SealedUnder() (ring tga.ID, keyed bool)
	// Stored is Attachments with the values as they are stored, sealed or not. A sealed value does not depend on the kind of store.
	Stored(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error]
	// OwnerKeys calls each with the owners whose keys are stored separately, and with these keys.
	OwnerKeys(ctx context.Context, each func(kind byte, id []byte, keys []chain.KeyID) error) error
}

// Copying says what is copied.
type Copying struct {
	Source
	ID          tga.ID // id of the store; the copy has the same id
	Incarnation uint32 // the newest incarnation; sessions of the copy get larger numbers
	// Left says that a complete copy was made before, so Leave was called. Only that copy may be continued: a second one, in another
	// database, would be served with keys that the first one has used.
	Left bool
	// Leave is called once the copy is complete and compared, before any process may serve it. It
	// makes sure that no process serves the source any more. It may be called again.
	Leave func() error
	// Evidence has the signed notes of the source, oldest first, with their kinds and sizes, and the first one with the key. The
	// copy has the same order as the source, so it has the same tree.
	Evidence []Keeping
	// Kept has the kept state of duties, by name. The process on duty of the copy continues from it.
	Kept map[string][]byte
	// Compare, if set, is called with the complete copy. An error ends the copy.
	Compare func(ctx context.Context, copied *Store) error
	// Progress, if set, is called with the number of copied appends and the number of all appends.
	Progress func(done, of uint64)
}

// Copied counts what was copied.
type Copied struct {
	Appends                               uint64
	Traces, Entries, Notes, Records, Rows int // Rows: of attachments
}

// Copy copies a store into an empty store of a database, with its id, its secret and its order. Entries,
// notes and ledger records are the same byte for byte. Run an interrupted copy again: it continues where
// it stopped. Until the copy is complete and compared with its source, a process that opens it finds it
// frozen.
//
// The rows of the order show how far a copy has come, because the row of an append commits together with
// its entries. Everything else is written again by each run.
func Copy(ctx context.Context, dsn string, o Options, from Copying) (done Copied, err error) {
	c := &copier{Copying: from, o: o.withDefaults(), dsn: dsn}
	if err := c.connect(ctx); err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, c.conn.Close(context.WithoutCancel(ctx))) }()
	for _, step := range []func(context.Context) error{c.sealed, c.begin, c.appends, c.heads, c.records, c.attachments, c.dataKeys, c.evidence, c.kept, c.compare} {
		if err := step(ctx); err != nil {
			return c.done, c.failed("copy", err)
		}
	}
	if err := from.Leave(); err != nil {
		return c.done, err
	}
	_, err = c.conn.Exec(ctx, "UPDATE tgad.meta SET value = '' WHERE shard = $1 AND name = $2", c.o.Shard, copyMark)
	return c.done, c.failed("copy", err)
}

// copyMark is the name of the row with the id of the source of a copy under way. The row is empty
// once the copy is complete.
const copyMark = "copying"

// copyUnderWay returns why a store with an incomplete copy is frozen.
func copyUnderWay() *tga.Error {
	return tga.Errorf(tga.StoreUnavailable, "a copy into it is not whole: run tgad copy again, then start this process anew")
}

type copier struct {
	Copying
	database
	o      Options
	dsn    string
	config *pgx.ConnConfig // used instead of dsn, if not nil
	conn   *pgx.Conn
	last   uint64 // newest append that is copied
	under  sealrules.SealedUnder
	used   map[chain.KeyID]bool // data keys of the copied traces and values
	done   Copied
}

func (c *copier) connect(ctx context.Context) error {
	config := c.config
	if config == nil {
		var err error
		if config, err = pgx.ParseConfig(c.dsn); err != nil {
			return tga.Errorf(tga.ValidationError, "copy: %w", err)
		}
	}
	var err error
	if c.o.Password != nil {
		if config.Password, err = c.o.Password(); err != nil {
			return err
		}
	}
	config.OnNotice = hear
	neverCancel(bounded(config))
	if c.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "copy: %w", err)
	}
	c.database.o, c.log = c.o, c.o.Logger
	if err := c.admit(ctx, c.conn); err != nil {
		return errors.Join(c.failed("copy", err), c.conn.Close(ctx))
	}
	return nil
}

// begin reserves an empty store for this copy, or continues a copy of the same source.
func (c *copier) begin(ctx context.Context) error {
	return pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO tgad.order_state (shard) VALUES ($1) ON CONFLICT DO NOTHING", c.o.Shard); err != nil {
			return err
		}
		// A process that opens the store takes the same lock. So either it has a session before the
		// mark is set, and this transaction sees the session, or it finds the mark.
		var last int64
		var mark, id []byte
		var open, used bool
		err := tx.QueryRow(ctx, "SELECT last FROM tgad.order_state WHERE shard = $1 FOR UPDATE", c.o.Shard).Scan(&last)
		if err == nil {
			err = tx.QueryRow(ctx, `SELECT (SELECT value FROM tgad.meta WHERE shard = $1 AND name = $2), (SELECT value FROM tgad.meta WHERE shard = $1 AND name = 'store'),
				EXISTS (SELECT 1 FROM tgad.sessions WHERE shard = $1 AND NOT ended AND expires > clock_timestamp()),
				EXISTS (SELECT 1 FROM tgad.leaves WHERE shard = $1) OR EXISTS (SELECT 1 FROM tgad.pending WHERE shard = $1) OR EXISTS (SELECT 1 FROM tgad.ledger WHERE shard = $1)
					OR EXISTS (SELECT 1 FROM tgad.attachments WHERE shard = $1)`, c.o.Shard, copyMark).Scan(&mark, &id, &open, &used)
		}
		goesOn := bytes.Equal(mark, c.ID[:])
		switch {
		case err != nil:
			return err
		case mark != nil && len(mark) == 0 && bytes.Equal(id, c.ID[:]):
			return tga.Errorf(tga.ValidationError, "the copy of store %s in shard %d is whole already: serve it", c.ID, c.o.Shard)
		case !goesOn && c.Left:
			return tga.Errorf(tga.ValidationError, "store %s was copied into another database or shard already, and is served from there", c.ID)
		case !goesOn && used:
			return tga.Errorf(tga.ValidationError, "the database has a store in shard %d already, and no copy of store %s", c.o.Shard, c.ID)
		case open && !goesOn:
			return tga.Errorf(tga.StateLockAcquireFailed, "a process has the store of shard %d open: stop it, and wait for its lease to be over", c.o.Shard)
		case uint64(last) > c.Cursor():
			return tga.Errorf(tga.StateChecksumMismatch, "the copy has %d appends, the source %d: the source has lost some", last, c.Cursor())
		}
		c.last = uint64(last)
		secret := c.Secret()
		b := &pgx.Batch{}
		b.Queue("UPDATE tgad.sessions SET ended = true WHERE shard = $1", c.o.Shard)
		b.Queue(`INSERT INTO tgad.sessions (shard, session, name, lease, steady, expires, ended) VALUES ($1, $2, 'before the copy', interval '0', now(), now(), true)
			ON CONFLICT DO NOTHING`, c.o.Shard, int64(c.Incarnation))
		rows := map[string][]byte{copyMark: c.ID[:], "store": c.ID[:], "secret": secret[:]}
		if !c.under.Ring.IsZero() {
			rows[ringName] = c.under.Value()
		}
		for name, value := range rows {
			b.Queue("INSERT INTO tgad.meta VALUES ($1, $2, $3) ON CONFLICT (shard, name) DO UPDATE SET value = excluded.value", c.o.Shard, name, value)
		}
		return tx.SendBatch(ctx, b).Close()
	})
}

// copyPage bounds the appends or rows of one transaction, and copyBytes its bytes.
const (
	copyPage  = 256
	copyBytes = 4 << 20
)

// appends copies the entries and notes of each append with its row of the order.
func (c *copier) appends(ctx context.Context) error {
	newest := c.Cursor()
	p := &page{}
	if c.last >= newest {
		return nil
	}
	for l, err := range c.Follow(ctx, c.last) {
		if err == nil {
			err = c.add(ctx, p, l)
		}
		if err == nil && (l.Index == newest || len(p.leaves) >= copyPage || p.size > copyBytes) {
			if err = c.write(ctx, p); err == nil && c.Progress != nil {
				c.Progress(l.Index, newest)
			}
			p = &page{}
		}
		if err != nil || l.Index == newest {
			return err
		}
	}
	return nil
}

// page has the rows that one transaction writes.
type page struct {
	leaves                 []chain.Leaf
	entryOf                [][16]byte
	seqs                   []int64
	headers, parts, spills [][]byte
	noteOf                 [][16]byte
	numbers                []int64
	frames                 [][]byte
	size                   int
}

// add adds the entries and notes of an append to a page.
func (c *copier) add(ctx context.Context, p *page, l chain.Leaf) error {
	p.leaves = append(p.leaves, l)
	if l.Entries == 0 && l.Notes == 0 {
		return nil
	}
	var epoch chain.Epoch // no list has the epoch of a note; use the epoch of the newest entry up to this append
	for e, err := range c.Entries(ctx, l.TraceID, 0) {
		if err != nil {
			return err
		}
		if l.Entries > 0 && e.Seq >= l.FirstSeq+uint64(l.Entries) {
			break
		}
		epoch = e.Epoch
		if l.Entries == 0 || e.Seq < l.FirstSeq {
			continue
		}
		header, parts, spill, err := splitFrame(&e, c.o.Keyring)
		if err != nil {
			return err
		}
		p.entryOf, p.seqs = append(p.entryOf, [16]byte(l.TraceID)), append(p.seqs, int64(e.Seq))
		p.headers, p.parts, p.spills = append(p.headers, header), append(p.parts, parts), append(p.spills, spill)
		p.size += len(header) + len(parts) + len(spill)
	}
	if l.Notes == 0 {
		return nil
	}
	t, err := c.Load(ctx, l.TraceID)
	if err != nil {
		return err
	}
	for i := range t.Notes {
		n := &t.Notes[i]
		if n.Number < l.FirstNote || n.Number >= l.FirstNote+uint32(l.Notes) {
			continue
		}
		frame := chain.AppendNoteFrame(nil, n, l.Committed, epoch)
		p.noteOf, p.numbers, p.frames = append(p.noteOf, [16]byte(l.TraceID)), append(p.numbers, int64(n.Number)), append(p.frames, frame)
		p.size += len(frame)
	}
	return nil
}

// write commits a page together with the new end of the copied order.
func (c *copier) write(ctx context.Context, p *page) error {
	last := p.leaves[len(p.leaves)-1]
	return pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue("INSERT INTO tgad.entries (shard, trace, seq, header, parts, spill) SELECT $1, * FROM unnest($2::uuid[], $3::int8[], $4::bytea[], $5::bytea[], $6::bytea[])",
			c.o.Shard, p.entryOf, p.seqs, filled(p.headers), filled(p.parts), filled(p.spills))
		b.Queue("INSERT INTO tgad.notes (shard, trace, number, frame) SELECT $1, * FROM unnest($2::uuid[], $3::int8[], $4::bytea[])", c.o.Shard, p.noteOf, p.numbers, filled(p.frames))
		for _, l := range p.leaves {
			b.Queue("INSERT INTO tgad.leaves VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)", c.o.Shard, int64(l.Index), [16]byte(l.TraceID), int64(l.FirstSeq), int64(l.Entries),
				int64(l.FirstNote), int64(l.Notes), l.HeadDigest[:], l.NoteDigest[:], int64(l.Committed), int64(l.NewestTS))
		}
		b.Queue("UPDATE tgad.order_state SET last = $2, committed = $3, newest = $4 WHERE shard = $1", c.o.Shard, int64(last.Index), int64(last.Committed), int64(last.NewestTS))
		return tx.SendBatch(ctx, b).Close()
	})
}
