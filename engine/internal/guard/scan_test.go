package guard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/schemas/tga"
)

// pebbleReads returns the records that Pebble's own reader gets out of a log.
func pebbleReads(b []byte, number uint64) (records [][]byte) {
	r := recordReader(record.NewReader, b, number)
	for {
		rec, err := r.Next()
		if err != nil {
			return records
		}
		p, err := io.ReadAll(rec)
		if err != nil {
			return records
		}
		records = append(records, p)
	}
}

// recordReader calls open, whose second parameter has a type that cannot be named here.
func recordReader[N ~uint64](open func(io.Reader, N) *record.Reader, b []byte, number uint64) *record.Reader {
	return open(bytes.NewReader(b), N(number))
}

// TestReaderAgreesWithPebble reads logs that Pebble wrote with both readers.
func TestReaderAgreesWithPebble(t *testing.T) {
	logs := 0
	for _, img := range images(t) {
		for name, b := range img.files {
			if !isLog(name) {
				continue
			}
			logs++
			number := logNumber(t, name)
			want := pebbleReads(b, number)
			w, problems, err := readWALBytes(b, number)
			if err != nil || len(problems) > 0 {
				t.Errorf("%s, %s: %v, %v", img.name, name, problems, err)
			}
			if w.Records != len(want) {
				t.Errorf("%s, %s: %d records, Pebble reads %d", img.name, name, w.Records, len(want))
			}
			if len(want) == 0 {
				continue
			}
			last := want[len(want)-1]
			if got, want := w.LastSeqnum, u64(last)+uint64(binary.LittleEndian.Uint32(last[8:]))-1; got != want {
				t.Errorf("%s, %s: newest seqnum %d, in Pebble's last batch %d", img.name, name, got, want)
			}
			if wantOffsets := !img.set.noFlush; w.SyncOffsets != wantOffsets {
				t.Errorf("%s, %s: sync offsets %v, want %v", img.name, name, w.SyncOffsets, wantOffsets)
			}
		}
	}
	if logs < 10 {
		t.Errorf("only %d logs", logs)
	}
}

// TestManifestAgreesWithPebble compares what a MANIFEST says after each flush with what
// Pebble told its listener.
func TestManifestAgreesWithPebble(t *testing.T) {
	mem := crashmem.New()
	created := uint64(0)
	o := pebbleOptions(mem, settings{})
	o.EventListener = &pebble.EventListener{WALCreated: func(i pebble.WALCreateInfo) { created = uint64(i.FileNum) }}
	o.MaxManifestFileSize = 400 // a new MANIFEST every few flushes
	db, err := pebble.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	manifests := map[string]bool{}
	for i := range 30 {
		b := db.NewBatch()
		set := []error{b.Set(key(i), value(i, 10), nil), b.Delete(key(i-1), nil)}
		switch i % 3 {
		case 1:
			set = append(set, b.RangeKeySet(key(i), key(i+1), nil, nil, nil))
		case 2:
			set = append(set, b.DeleteRange(key(0), key(i-1), nil))
		}
		if err := errors.Join(append(set, db.Apply(b, pebble.Sync))...); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		if i%7 == 6 {
			if err := db.Compact(t.Context(), key(0), key(99), false); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Scan(mem, dir)
		if err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
		manifests[r.Manifest.Name] = true
		m := r.Manifest
		if seqnum := uint64(b.SeqNum()) + uint64(b.Count()) - 1; m.FlushedSeqnum != seqnum || m.LastSeqnum != seqnum || m.FlushedWAL != created {
			t.Errorf("flush %d: %+v; want seqnum %d, log %d", i, m, seqnum, created)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if len(manifests) < 3 {
		t.Errorf("only %d MANIFESTs", len(manifests))
	}
}

func TestScanWritesNothing(t *testing.T) {
	for _, img := range images(t) {
		mem := memFS(t, img.files, nil)
		counting := FS(mem, FSOptions{})
		if _, _, err := Check(counting, dir); err != nil {
			t.Error(err)
		}
		if c := counting.Counts(); c != (Counts{}) {
			t.Errorf("%s: %+v", img.name, c)
		}
		if after := files(t, mem); !maps.EqualFunc(after, img.files, bytes.Equal) {
			t.Errorf("%s: files changed", img.name)
		}
	}
	if _, m, err := Check(vfs.NewMem(), "no such directory"); err != nil || m != (Mark{}) {
		t.Errorf("no directory: %+v, %v", m, err)
	}
}

// older returns an image with several live logs, one that is not the newest, and its bytes.
func older(t *testing.T) (img image, name string, b []byte) {
	img = severalLogsImage(t)
	r, err := Scan(memFS(t, img.files, nil), dir)
	if err != nil {
		t.Fatal(err)
	}
	name = r.WALs[1].Name
	return img, name, img.files[name]
}

// TestChunkThatReadsAsATrailerIsRefused changes one chunk's log number to the next one,
// one bit for an even number. Pebble takes that for the end of a log that was closed,
// without a look at the checksum, in any log and at any format version.
func TestChunkThatReadsAsATrailerIsRefused(t *testing.T) {
	img, name, b := older(t)
	number := uint32(logNumber(t, name))
	c, _ := at(b[:blockSize], 0, number, true)
	damaged := slices.Clone(b)
	binary.LittleEndian.PutUint32(damaged[c.end+7:], number+1)
	change := map[string][]byte{name: damaged}
	bare := img.set
	bare.bare = true
	if got, err := judge(t, memFS(t, img.files, change), bare, img.acked); got != lost {
		t.Errorf("Pebble alone: %s, %v: is the defect gone?", got, err)
	}
	r, err := Scan(memFS(t, img.files, change), dir)
	if err != nil || !errors.Is(r.Err(), tga.StateChecksumMismatch) {
		t.Errorf("%v, %v", r.Err(), err)
	}
}

// TestLogCutAtARecordIsRefused cuts a log that is not the newest where a record ends.
// Pebble goes on with the next log.
func TestLogCutAtARecordIsRefused(t *testing.T) {
	img, name, b := older(t)
	c, _ := at(b[:blockSize], 0, uint32(logNumber(t, name)), true)
	change := map[string][]byte{name: b[:c.end]}
	bare := img.set
	bare.bare = true
	if got, err := judge(t, memFS(t, img.files, change), bare, img.acked); got != lost {
		t.Errorf("Pebble alone: %s, %v: is the defect gone?", got, err)
	}
	r, err := Scan(memFS(t, img.files, change), dir)
	if err != nil || !strings.Contains(r.Err().Error(), "closed one") || !strings.Contains(r.Err().Error(), "begins with seqnum") {
		t.Errorf("%v, %v", r.Err(), err)
	}
}

// TestForgedChunksAreProblems writes chunks with right checksums that no writer writes.
func TestForgedChunksAreProblems(t *testing.T) {
	const number = 4
	batch := func(seqnum uint64, count uint32) []byte {
		b := binary.LittleEndian.AppendUint64(nil, seqnum)
		return binary.LittleEndian.AppendUint32(b, count)
	}
	forgeFor := func(log uint32, kind byte, syncOffset uint64, payload []byte) []byte {
		b := []byte{0, 0, 0, 0, 0, 0, kind}
		if kind > 4 {
			b = binary.LittleEndian.AppendUint32(b, log)
		}
		if kind > 8 {
			b = binary.LittleEndian.AppendUint64(b, syncOffset)
		}
		b = append(b, payload...)
		binary.LittleEndian.PutUint16(b[4:], uint16(len(payload)))
		binary.LittleEndian.PutUint32(b, checksum(b[6:]))
		return b
	}
	forge := func(kind byte, syncOffset uint64, payload []byte) []byte {
		return forgeFor(number, kind, syncOffset, payload)
	}
	trailer := []byte{0, 0, 0, 0, 0, 0, trailerType, number + 1, 0, 0, 0}
	first := forge(9, 0, batch(10, 2))
	for _, c := range []struct {
		name string
		log  []byte
		want string // in the problem; "" = none
		end  End
	}{
		{"one batch", first, "", EndFile},
		{"and a second", slices.Concat(first, forge(9, 31, batch(12, 1))), "", EndFile},
		{"log data", slices.Concat(first, forge(9, 0, batch(12, 0)), forge(9, 0, batch(12, 1))), "", EndFile},
		{"closed", slices.Concat(first, trailer), "", EndClosed},
		{"zeros", slices.Concat(first, make([]byte, 40)), "", EndTorn},
		{"older log", slices.Concat(first, forgeFor(number-1, 9, 0, batch(5, 1))), "", EndTorn},
		{"next log", slices.Concat(first, forgeFor(number+1, 9, 0, batch(5, 1))), "", EndTorn},
		{"next log, full", slices.Concat(first, forgeFor(number+1, trailerType, 0, batch(5, 1))), "", EndTorn},
		{"half a record", slices.Concat(first, forge(10, 0, batch(12, 1))), "", EndTorn},
		{"sync offset at its own chunk", slices.Concat(first, forge(9, 31, batch(12, 1))), "", EndFile},
		{"sync offset beyond its own chunk", slices.Concat(first, forge(9, 32, batch(12, 1))), "beyond its own chunk", EndTorn},
		{"no log number", slices.Concat(first, forge(1, 0, batch(12, 1))), "without a log number", EndTorn},
		{"other format", slices.Concat(first, forge(5, 0, batch(12, 1))), "another format", EndTorn},
		{"last without first", slices.Concat(first, forge(12, 0, batch(12, 1))), "does not continue", EndTorn},
		{"first after first", slices.Concat(forge(10, 0, batch(10, 2)), first), "does not continue", EndTorn},
		{"gap", slices.Concat(first, forge(9, 0, batch(13, 1))), "want 12", EndFile},
		{"twice", slices.Concat(first, first), "want 12", EndFile},
		{"short record", forge(9, 0, batch(10, 1)[:11]), "shorter than a batch header", EndFile},
		{"behind the trailer", slices.Concat(first, trailer, forge(9, 0, batch(12, 1))), "behind its trailer", EndClosed},
	} {
		w, problems, err := readWALBytes(c.log, number)
		switch {
		case err != nil || w.End != c.end:
			t.Errorf("%s: ends %v, want %v; %v", c.name, w.End, c.end, err)
		case c.want == "" && len(problems) > 0, c.want != "" && (len(problems) == 0 || !strings.Contains(problems[0].What, c.want)):
			t.Errorf("%s: problems %v, want %q", c.name, problems, c.want)
		}
	}
}

// TestHoleBelowASyncOffsetIsCorruption damages each chunk of a log. With no watermark to
// help, Scan must see what a later chunk proves, and must claim no more.
func TestHoleBelowASyncOffsetIsCorruption(t *testing.T) {
	for _, img := range images(t) {
		for name, b := range img.files {
			if !isLog(name) || img.set.noFlush {
				continue
			}
			number := uint32(logNumber(t, name))
			var chunks []chunk
			var bases []int
			for base := 0; base < len(b); base += blockSize {
				block := b[base:min(base+blockSize, len(b))]
				for off := 0; off < len(block); {
					c, what := at(block, off, number, true)
					if what != foundChunk {
						break
					}
					chunks, bases = append(chunks, c), append(bases, base)
					off = c.end
				}
			}
			for i, c := range chunks {
				offset := bases[i] + c.start
				for c.position > positionFirst && chunks[i].position != positionFirst {
					i-- // the record's start
				}
				start := bases[i] + chunks[i].start
				proved := false
				for j := i + 1; j < len(chunks); j++ {
					proved = proved || bases[j]+chunks[j].start > offset && int(chunks[j].syncOffset) > start
				}
				_, problems, err := readWALBytes(flip(b, offset, 0x10), uint64(number))
				if err != nil || proved != (len(problems) > 0) {
					t.Errorf("%s, %s: chunk at %d: a later one proves it: %v; problems: %v, %v", img.name, name, offset, proved, problems, err)
				}
			}
		}
	}
}

// TestHoleBeforeALaterEditIsCorruption damages each byte of a MANIFEST but the last edit.
func TestHoleBeforeALaterEditIsCorruption(t *testing.T) {
	mem := crashmem.New()
	s := mustOpen(t, mem, settings{})
	for range 4 {
		s.add(2, 20)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	img := crash(t, "", s, mem)
	name := newest(img.files, isManifest)
	b := img.files[name]
	last := 0
	for off := 0; off < len(b); {
		c, what := at(b, off, 0, false)
		if what != foundChunk {
			t.Fatalf("offset %d: %d", off, what)
		}
		last, off = off, c.end
	}
	for i := range b {
		m := newManifestReader(name)
		if _, err := m.Write(flip(b, i, 0xff)); err != nil {
			t.Fatal(err)
		}
		m.finish()
		if (i < last) != (len(m.problems) > 0) {
			t.Errorf("byte %d, the last edit is at %d: %v", i, last, m.problems)
		}
	}
}

// TestSyncOffsetsFallBehind shows why the watermark is needed beside the sync offsets:
// Pebble does not count the full blocks that it writes, only the parts of blocks.
func TestSyncOffsetsFallBehind(t *testing.T) {
	for _, size := range []int{1000, 20_000, 60_000} {
		mem := crashmem.New()
		s := mustOpen(t, mem, settings{})
		s.add(3_000_000/size, size)
		m := files(t, mem)
		w, _, err := readWALBytes(m[newest(m, isLog)], logNumber(t, newest(m, isLog)))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("records of %d bytes: synced to %d, sync offset %d", size, w.EndOffset, w.SyncedTo)
		if w.EndOffset-w.SyncedTo < w.EndOffset/100 || size > 10_000 && w.EndOffset-w.SyncedTo < 8*blockSize {
			t.Errorf("records of %d bytes: the sync offset is %d behind: has Pebble changed?", size, w.EndOffset-w.SyncedTo)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostMarkerIsRefused removes the file that names the MANIFEST: Pebble would create
// a store in the place of the one that is there.
func TestLostMarkerIsRefused(t *testing.T) {
	for _, img := range images(t) {
		marker := newest(img.files, func(n string) bool { return strings.HasPrefix(n, manifestMarker) })
		for _, change := range []map[string][]byte{
			{marker: nil},
			{marker: nil, WatermarkName: nil},
		} {
			if _, _, err := Check(memFS(t, img.files, change), dir); !errors.Is(err, tga.StateChecksumMismatch) {
				t.Errorf("%s: %v", img.name, err)
			}
		}
	}
}
