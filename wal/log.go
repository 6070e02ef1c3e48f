package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// Options of a log. Dir, FS and Random are needed.
type Options struct {
	FS     vfs.FS
	Dir    string
	Random func([]byte) error // fills a slice with random bytes
	Logger *slog.Logger
	// FirstSize is the size of the first segment, and Size that of those which have grown
	// to it, in bytes: multiples of 4096 from [MinSegment] to [MaxSegment]. Any other number is
	// rounded to the next of these. Default 4 MiB and 64 MiB.
	FirstSize, Size uint32
	// Handles bounds the files that are kept open for reading. Default 256.
	Handles int
	// BlockCache is how many bytes of packed segments are kept decompressed. Default 8 MiB.
	BlockCache int
}

// firstSegment is the length of a store's first segment, in bytes. It is short because most
// stores stay small.
const firstSegment = 4 << 20

func (o Options) withDefaults() Options {
	if o.Size == 0 {
		o.Size = max(64<<20, o.FirstSize)
	}
	if o.FirstSize == 0 {
		o.FirstSize = min(firstSegment, o.Size)
	}
	o.Size, o.FirstSize = readable(o.Size), readable(o.FirstSize)
	if o.Handles == 0 {
		o.Handles = 256
	}
	if o.BlockCache == 0 {
		o.BlockCache = 8 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// readable rounds the size of a segment to one that decodeIdentity takes: otherwise what is acknowledged in
// the segment could not be read again.
func readable(size uint32) uint32 {
	whole := (uint64(size) + identityLen - 1) / identityLen * identityLen
	return uint32(min(max(whole, MinSegment), MaxSegment))
}

// segment is one file of the log.
type segment struct {
	id   Identity
	size uint32 // of the file; less than the identity says where it was cut off
	// first is the link's record: nil where no record was written to the segment yet.
	first *Record
	link  *link
}

// Log is the log of a store. Many goroutines may call [Log.Read] at once, also while one
// goroutine writes. The other methods may be called by one goroutine at a time.
type Log struct {
	opts     Options
	files    files
	handles  handles
	mu       sync.Mutex      // the list of segments, where the log is written
	segments []*segment      // in the order of their numbers
	fresh    map[tga.ID]bool // body files that no record names yet
	durable  Position        // end of the newest record that was appended
	stale    []version       // files that a rewrite replaced or did not finish; they are to be removed
	unwiped  []version       // those of an earlier process that could not be removed; they are always wiped, see [Log.Wipe]
	doubt    *tga.Error      // what is missing or damaged, as far as identities and links say

	// Of the writer.
	id    Identity // of the newest segment with records
	line  tga.ID   // timeline of what is appended
	f     *pageFile
	page  []byte // of the page of l.at.End: what is before it
	at    Position
	next  uint64 // index of the next append
	times Times
	spare *spare
	made  atomic.Pointer[spare] // the newest that this process began, for [Log.Abandon]
	wipe  atomic.Bool           // see [Log.Wipe]
	// removing is held for reading while a file is removed that is not wiped, and for writing while wipe changes.
	removing sync.RWMutex
	// packing is held while a rewrite uses the file of that name.
	packing sync.Mutex
	// copies is held for reading while a copy is made, and for writing while a file is wiped.
	copies sync.RWMutex
	err    error // of the first failed write: from then on the file's content is unknown
	syncs  atomic.Int64
	bytes  atomic.Int64
}

// Create makes a durable log with one segment. The directory must exist and be empty.
func Create(o Options, store, timeline tga.ID) (*Log, error) {
	l := newLog(o)
	list, err := l.files.versions()
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		return nil, tga.Errorf(tga.ValidationError, "log: %s has segments", l.opts.Dir)
	}
	l.id, l.line = Identity{Store: store, Timeline: timeline}, timeline
	l.next = 1
	if err := l.advance(0); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func newLog(o Options) *Log {
	l := &Log{opts: o.withDefaults(), fresh: map[tga.ID]bool{}}
	l.files = files{l.opts.FS, l.opts.Dir}
	l.handles.init(l.files, l.opts)
	return l
}

// Store returns the id of the store that the log was made for. A copy of the log returns the
// same id, even when another store was made from that copy.
func (l *Log) Store() tga.ID { return l.segments[0].id.Store }

// Timeline returns the newest timeline: the timeline of the newest record.
func (l *Log) Timeline() tga.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.segments[0].id.Timeline
	for _, s := range l.segments {
		if s.first != nil {
			line = s.id.Timeline
		}
	}
	return line
}

// Has reports whether some segment of the log belongs to that timeline.
func (l *Log) Has(timeline tga.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.segments, func(s *segment) bool { return s.id.Timeline == timeline })
}

// End returns the end of the newest durable record. It is the zero Position until the log is
// opened for writing.
func (l *Log) End() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// Size returns how many bytes the log takes on disk.
func (l *Log) Size() int64 { return l.files.size() }

// Syncs and Bytes are how often the log was synced since it was opened, and how many bytes
// of records were written.
func (l *Log) Syncs() int64 { return l.syncs.Load() }
func (l *Log) Bytes() int64 { return l.bytes.Load() }

// Append makes g durable: one write, one sync. Show nothing of g to anybody before Append
// has returned. An error is STORE_UNAVAILABLE: whether g is in the file is then unknown, and
// every later Append fails.
func (l *Log) Append(g *Group) (Position, error) {
	if l.err != nil {
		return Position{}, l.err
	}
	if size := uint32(g.Len()); l.at.End+size > l.id.Size {
		if l.err = l.advance(size); l.err != nil {
			return Position{}, l.err
		}
	}
	if l.err = l.write(g); l.err != nil {
		return Position{}, l.err
	}
	l.prepare()
	return l.at, nil
}

// write puts g behind the newest record and syncs it.
func (l *Log) write(g *Group) error {
	g.encode(&l.id, l.at.End, l.at, l.next, l.page)
	if err := l.f.writeAt(g.buf, int64(l.at.End)-int64(g.lead)); err != nil {
		return unavailable(fmt.Sprintf("write group %d", g.head.group), err)
	}
	if err := l.f.SyncData(); err != nil {
		return unavailable(fmt.Sprintf("sync group %d", g.head.group), err)
	}
	l.wrote(g)
	return nil
}

// wrote records that g is now the newest record.
func (l *Log) wrote(g *Group) {
	l.at = Position{Segment: l.id.Number, Start: l.at.End, End: l.at.End + g.head.size(), Group: g.head.group, Sum: g.head.checksum}
	end := g.lead + g.Len()
	l.page = append(l.page[:0], g.buf[end-int(l.at.End%pageLen):end]...)
	l.next += uint64(g.orders)
	l.times, g.at = g.Times, l.at
	l.mu.Lock()
	l.durable = l.at
	l.mu.Unlock()
	for _, o := range g.ops {
		l.named(o.files)
	}
	l.syncs.Add(1)
	l.bytes.Add(int64(g.Len()))
}

// advance begins the next segment, which has room for a record of room bytes. The link is
// synced before any other record is written. If both were in one write, a power cut could
// keep only the second, which looks like the loss of an acknowledged record.
func (l *Log) advance(room uint32) error {
	id, err := l.takeSpare(identityLen + linkSize + room)
	if err != nil {
		return err
	}
	f, err := l.files.fs.OpenReadWrite(l.files.path(segmentName(id.Number)), vfs.WriteCategoryUnspecified)
	if err != nil {
		return unavailable("open segment "+segmentName(id.Number), err)
	}
	if l.f != nil {
		if err := closing(l.f); err != nil {
			return errors.Join(err, closing(f))
		}
	}
	before := link{start: l.at.Start, end: l.at.End, timeline: l.id.Timeline}
	if l.at.Group == 0 {
		before = link{}
	}
	l.f, l.page, l.id, l.at.End = pagesOf(f), l.page[:0], id, identityLen
	var o Ops
	before.appendTo(&o)
	g := Group{Times: l.times}
	g.Add(&o, MaxRecord)
	if err := l.write(&g); err != nil {
		return err
	}
	l.know(&segment{id: id, size: id.Size, first: &Record{At: l.at, head: g.head}, link: &before})
	return nil
}

// know adds the segment that was just begun to the list. It replaces the list's entry for the
// same segment, which is there if an earlier process made the segment as a spare.
func (l *Log) know(s *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = slices.DeleteFunc(l.segments, func(old *segment) bool { return old.id.Number >= s.id.Number })
	l.segments = append(l.segments, s)
}

// Abandon stops the log's work in the background. It is for a log that nobody can close,
// because its writer hangs in a write.
func (l *Log) Abandon() {
	if s := l.made.Load(); s != nil {
		s.stop()
	}
}

// Close closes the log without writing a last record. [Log.Finish] writes one.
func (l *Log) Close() error {
	var err error
	if l.spare != nil {
		l.spare.stop()
		l.spare.wait() // its error no longer matters: the segment is not going to be used
	}
	if l.f != nil {
		err = closing(l.f)
		l.f = nil
	}
	if l.err == nil {
		l.err = unavailable("append", errClosed)
	}
	return errors.Join(err, l.handles.close())
}

// Finish appends a last record that marks a clean end, and closes the log. The next process
// that opens the log appends behind that record, in the same segment.
func (l *Log) Finish() (Position, error) {
	var o Ops
	o.add(closedOp, Nowhere, nil, nil, 0, 0)
	g := Group{Times: l.times}
	g.Add(&o, MaxRecord)
	at, err := l.Append(&g)
	return at, errors.Join(err, l.Close())
}
