package guard

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"github.com/tgad/tgad/schemas/tga"
)

// Report is what a store's MANIFEST and live WALs say before Pebble opens it.
type Report struct {
	// Exists is false when the directory holds no store: no MANIFEST is current.
	Exists   bool
	Manifest Manifest
	WALs     []WAL // the live ones, oldest first
	// NewestSeqnum is the newest Pebble seqnum that opening the store brings back for
	// certain, NewestWAL the number of the newest live WAL; 0 when there is none.
	NewestSeqnum uint64
	NewestWAL    uint64
	Problems     []Problem
}

// firstSeqnum is the first seqnum that Pebble gives out; lower ones are reserved.
const firstSeqnum = 10

// Scan reads the MANIFEST that the marker file names and the WALs it leaves unflushed.
// It writes nothing. The error is the file system's; what is wrong with the store
// itself is in the report's Problems.
func Scan(fsys vfs.FS, dir string) (Report, error) {
	var r Report
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, unavailable("scan "+dir, err)
	}
	current, err := atomicfs.ReadMarker(fsys, dir, "manifest")
	if err != nil {
		r.problem("marker.manifest", 0, err.Error())
		return r, nil
	}
	if current == "" {
		return r, r.scanUnmarked(fsys, dir, names)
	}
	r.Exists = true
	if err := r.scanManifest(fsys, dir, current); err != nil {
		return r, err
	}
	for _, l := range r.liveWALs(names) {
		w, problems, err := scanWAL(fsys, dir, l)
		if err != nil {
			return r, err
		}
		r.WALs = append(r.WALs, w)
		r.Problems = append(r.Problems, problems...)
	}
	r.checkChain()
	return r, nil
}

// Check scans the store and verifies it against its watermark, before Pebble opens it.
// The mark is zero for a directory that holds nothing yet. A store that was written and
// has no watermark is STATE_CHECKSUM_MISMATCH: nothing says that it is whole.
func Check(fsys vfs.FS, dir string) (Report, Mark, error) {
	r, err := Scan(fsys, dir)
	if err != nil {
		return r, Mark{}, err
	}
	m, err := ReadWatermark(fsys, dir)
	if errors.Is(err, tga.NotFound) {
		if r.Empty() {
			return r, Mark{}, nil
		}
		err = mismatch("%s: the store was written up to seqnum %d and has no watermark", dir, r.NewestSeqnum)
	}
	if err != nil {
		return r, m, err
	}
	return r, m, r.Verify(m)
}

// Empty reports whether nothing could be lost: there is no store, or one that was
// created and never written.
func (r Report) Empty() bool {
	return len(r.Problems) == 0 && r.NewestSeqnum == 0 && r.Manifest.LastSeqnum < firstSeqnum
}

// Err returns nil, or STATE_CHECKSUM_MISMATCH with every problem.
func (r Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	text := make([]string, len(r.Problems))
	for i, p := range r.Problems {
		text[i] = p.String()
	}
	return mismatch("scan: %s", strings.Join(text, "; "))
}

// Verify compares the report with the watermark. It returns STATE_CHECKSUM_MISMATCH
// that names what is lost: the report's problems, a flush that the MANIFEST no longer
// knows, or acknowledged records that no WAL holds any more.
func (r Report) Verify(m Mark) error {
	if err := r.Err(); err != nil {
		return err
	}
	if r.Manifest.FlushedWAL < m.FlushedWAL {
		return mismatch("verify %s: flushed up to WAL %d, but up to WAL %d was recorded: the last flushes are lost",
			r.Manifest.Name, r.Manifest.FlushedWAL, m.FlushedWAL)
	}
	// The MANIFEST forgets the seqnums of flushed keys in compactions; the watermark
	// remembers them for the flushes it has seen, and the MANIFEST has them all.
	newest := max(r.NewestSeqnum, m.FlushedSeqnum)
	if newest < m.Newest {
		return mismatch("verify WAL %d: newest seqnum %d, but %d was durable: %d acknowledged records are lost",
			r.NewestWAL, newest, m.Newest, m.Newest-newest)
	}
	return nil
}

// scanUnmarked looks at a directory in which Pebble would create a store. Pebble
// deletes the tables it then finds, and replays the logs onto nothing.
func (r *Report) scanUnmarked(fsys vfs.FS, dir string, names []string) error {
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob") {
			r.problem(name, 0, "a table, but no marker names a MANIFEST")
			continue
		}
		number, _, ok := wal.ParseLogFilename(name)
		if !ok {
			continue
		}
		w, _, err := scanWAL(fsys, dir, logFile{uint64(number), name})
		if err != nil {
			return err
		}
		if w.Records > 0 {
			r.problem(name, 0, fmt.Sprintf("a log of %d records, but no marker names a MANIFEST", w.Records))
		}
	}
	return nil
}

func (r *Report) scanManifest(fsys vfs.FS, dir, name string) error {
	m := newManifestReader(name)
	err := readFile(fsys, fsys.PathJoin(dir, name), func(f io.Reader) error {
		_, err := io.Copy(m, f)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		r.Manifest.Name = name
		r.problem(name, 0, "the marker names it, but it is missing")
		return nil
	}
	if err != nil {
		return err
	}
	m.finish()
	r.Manifest = m.Manifest
	r.Problems = append(r.Problems, m.problems...)
	return nil
}

type logFile struct {
	number uint64
	name   string
}

// liveWALs returns the logs that Pebble will replay, oldest first.
func (r *Report) liveWALs(names []string) []logFile {
	var live []logFile
	for _, name := range names {
		number, index, ok := wal.ParseLogFilename(name)
		if !ok || uint64(number) < r.Manifest.FlushedWAL {
			continue
		}
		if index != 0 {
			r.problem(name, 0, "a segment of a failed-over log")
			continue
		}
		live = append(live, logFile{uint64(number), name})
	}
	slices.SortFunc(live, func(a, b logFile) int { return cmp.Compare(a.number, b.number) })
	return live
}

func scanWAL(fsys vfs.FS, dir string, l logFile) (w WAL, problems []Problem, err error) {
	err = readFile(fsys, fsys.PathJoin(dir, l.name), func(f io.Reader) error {
		w, problems, err = readWAL(f, l.name, l.number)
		return err
	})
	return w, problems, err
}

func readFile(fsys vfs.FS, path string, read func(io.Reader) error) error {
	f, err := fsys.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return unavailable("scan "+path, err)
	}
	if err := errors.Join(read(f), f.Close()); err != nil {
		return unavailable("scan "+path, err)
	}
	return nil
}

// checkChain holds the WALs against each other and against the MANIFEST: every log
// but the newest was closed before the next was created, and seqnums have no gap.
func (r *Report) checkChain() {
	r.NewestSeqnum = r.Manifest.FlushedSeqnum
	next := uint64(0)
	for i, w := range r.WALs {
		if i < len(r.WALs)-1 && w.End != EndClosed {
			r.problem(w.Name, w.EndOffset, "not the newest log, and it does not end as a closed one")
		}
		r.NewestWAL = w.Number
		if w.FirstSeqnum == 0 {
			continue
		}
		if next == 0 {
			if limit := max(r.Manifest.LastSeqnum+1, firstSeqnum); w.FirstSeqnum > limit {
				r.problem(w.Name, 0, fmt.Sprintf("begins with seqnum %d, but the MANIFEST ends before %d", w.FirstSeqnum, limit))
			}
		} else if w.FirstSeqnum != next {
			r.problem(w.Name, 0, fmt.Sprintf("begins with seqnum %d, want %d", w.FirstSeqnum, next))
		}
		next = w.LastSeqnum + 1
		r.NewestSeqnum = max(r.NewestSeqnum, w.LastSeqnum)
	}
}

func (r *Report) problem(file string, offset int64, what string) {
	r.Problems = append(r.Problems, Problem{file, offset, what})
}

func mismatch(format string, args ...any) error {
	e := tga.Errorf(tga.StateChecksumMismatch, format, args...)
	e.Where = "stored"
	return e
}

func unavailable(what string, err error) error {
	return tga.Errorf(tga.StoreUnavailable, what+": %w", err)
}
