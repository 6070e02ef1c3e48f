package wal

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// Open reads the identities and the links of all segments, and writes nothing. NOT_FOUND:
// there is no log. VALIDATION_ERROR: a segment belongs to another store. Other damage is not
// an error of Open: a scan reports it as [Tail.Doubt], so that the undamaged rest can be read.
func Open(o Options) (*Log, error) {
	l := newLog(o)
	list, err := l.files.versions()
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, tga.Errorf(tga.NotFound, "log: %s has no segment", l.opts.Dir)
	}
	for len(list) > 0 && err == nil {
		n := 1
		for n < len(list) && list[n].number == list[0].number {
			n++
		}
		err = l.take(list[:n])
		list = list[n:]
	}
	if err == nil && len(l.segments) == 0 {
		err = l.doubt // there is nothing to read
	}
	if err != nil {
		return nil, errors.Join(err, l.handles.close())
	}
	return l, nil
}

// take reads the identity and the link of a segment from the newest of its files that can be
// read. The other files are leftovers of a rewrite.
func (l *Log) take(list []version) error {
	n := list[0].number
	if want := uint64(len(l.segments)) + 1; l.doubt == nil && n != want {
		l.doubt = damaged("segment %d is missing: the one after %d is %d", want, want-1, n)
	}
	var h *handle
	var err error
	for i, v := range list {
		l.handles.gens[n] = v.gen
		if h, err = l.handles.acquire(n); err == nil {
			l.stale = append(l.stale, list[i+1:]...)
			break
		}
		if tga.CodeOf(err) != tga.StateChecksumMismatch {
			return err
		}
		l.stale = append(l.stale, v)
	}
	if err != nil {
		return l.doubted(err)
	}
	err = l.describe(n, h)
	return errors.Join(l.doubted(err), l.handles.release(h))
}

// describe adds a segment to the list of the log.
func (l *Log) describe(n uint64, h *handle) error {
	s := &segment{}
	var err error
	if s.id, s.size, err = h.identity(n); err != nil {
		return err
	}
	w := &window{f: h, size: s.size}
	if s.first, s.link, err = w.readLink(&s.id); err != nil {
		return err
	}
	var before *segment
	if len(l.segments) > 0 {
		before = l.segments[len(l.segments)-1]
	}
	l.segments = append(l.segments, s)
	if before == nil {
		return nil
	}
	if s.id.Store != before.id.Store {
		return tga.Errorf(tga.ValidationError, "log: segment %d is of store %s, segment %d of %s", n, s.id.Store, before.id.Number, before.id.Store)
	}
	if s.first == nil {
		return nil
	}
	return l.joined(before, s)
}

// joined checks that the segment before s ends with the record that the link of s names.
func (l *Log) joined(before, s *segment) error {
	if before.id.Number+1 != s.id.Number {
		return nil // the gap is known
	}
	if before.first == nil {
		return damaged("segment %d follows segment %d, which has no record", s.id.Number, before.id.Number)
	}
	if before.id.Timeline != s.link.timeline {
		return damaged("segment %d does not follow the segment %d that is there", s.id.Number, before.id.Number)
	}
	return l.handles.with(before.id.Number, func(h *handle) error {
		w := &window{f: h, size: before.size}
		b, err := w.bytes(s.link.start, headerLen)
		if err != nil {
			return err
		}
		last, ok := readHeader(b, &before.id, s.link.start)
		if !ok || last.checksum != s.first.head.prev || last.group+1 != s.first.head.group || s.link.start+last.size() != s.link.end {
			return damaged("segment %d ends with group %d, which is not there", before.id.Number, s.first.head.group-1)
		}
		return nil
	})
}

// doubted keeps the first damage as the log's doubt. It returns nil for damage, and every
// other error as it is.
func (l *Log) doubted(err error) error {
	var e *tga.Error
	if err == nil || !errors.As(err, &e) || e.Code != tga.StateChecksumMismatch {
		return err
	}
	if l.doubt == nil {
		l.doubt = e
	}
	return nil
}

// Resume prepares a log for appends behind the end that a scan found. A Tail with a Doubt is
// refused with that doubt.
//
// Resume writes the last record again, with the same bytes, and syncs it. The sync of the
// process that wrote it may have failed and left the pages marked clean, and then another
// sync alone would write nothing. After an end that is not clean, appends go to a new segment:
// the remains of a torn group are not written over.
func (l *Log) Resume(t Tail) error {
	if t.Doubt != nil {
		return t.Doubt
	}
	i, err := l.goOn(t)
	if err != nil {
		return err
	}
	l.line = l.id.Timeline
	l.unwiped, l.stale = l.stale, nil
	if err := l.dropUnwiped(); err != nil {
		l.opts.Logger.Warn("an old file of the log cannot be removed", "error", err) // no reason to refuse the log
	}
	if i+1 < len(l.segments) && l.segments[i+1].id.Timeline == l.line { // made ahead and not begun
		l.spare = newSpare(l.segments[i+1].id)
		close(l.spare.done)
	}
	if !t.Clean || l.segments[i].size < l.id.Size {
		return l.advance(0)
	}
	return nil
}

// dropUnwiped wipes and removes the files that an earlier process did not remove. Nothing is read from them, and the rewrite that a
// crash ended may have been for an erasure. The next rewrite, or the next [Log.Wipe], tries again with a file that stays.
// Appends and reads go on meanwhile.
func (l *Log) dropUnwiped() error {
	return l.drop(&l.unwiped, func(v version) error {
		l.copies.Lock() // one wipe at a time: a second one would make the file that the first one removes
		defer l.copies.Unlock()
		err := l.files.wipe(v.name())
		if err == nil {
			err = l.files.remove([]version{v})
		}
		if errors.Is(err, fs.ErrNotExist) { // only its removal was not synced
			err = l.files.sync()
		}
		return err
	})
}

// drop calls remove for each of the files in list, without l.mu, and takes those off the list for which it succeeds.
func (l *Log) drop(list *[]version, remove func(version) error) (err error) {
	l.mu.Lock()
	all := slices.Clone(*list)
	l.mu.Unlock()
	for _, v := range all {
		if e := remove(v); e != nil {
			err = errors.Join(err, e)
			continue
		}
		l.mu.Lock()
		*list = slices.DeleteFunc(*list, func(old version) bool { return old == v })
		l.mu.Unlock()
	}
	return err
}

// Fork prepares a log for appends behind the end that a scan found, in a new timeline,
// whatever is missing behind that end. Segments behind the end are renamed with [AsidePrefix]:
// they are evidence, and no log reads them any more. Nothing is written over. A crash in Fork
// leaves either the log with its doubt or the new timeline.
func (l *Log) Fork(t Tail, timeline tga.ID) error {
	list, err := l.files.versions()
	if err != nil {
		return err
	}
	for _, v := range slices.Backward(list) { // the highest first, so that a crash here makes no new gap
		if v.number <= t.At.Segment {
			continue
		}
		if err := l.setAside(v, timeline); err != nil {
			return err
		}
	}
	if err := l.files.sync(); err != nil {
		return unavailable("sync "+l.opts.Dir, err)
	}
	l.mu.Lock()
	l.segments = slices.DeleteFunc(l.segments, func(s *segment) bool { return s.id.Number > t.At.Segment })
	l.doubt, l.stale = nil, nil
	l.mu.Unlock()
	if _, err := l.goOn(t); err != nil {
		return err
	}
	l.line = timeline
	return l.advance(0)
}

// setAside takes a file out of the log: it renames the file, or removes it if it is a raw
// segment without a record, which is evidence of nothing.
func (l *Log) setAside(v version, timeline tga.ID) error {
	if err := l.handles.forget(v.number); err != nil {
		return err
	}
	empty := slices.ContainsFunc(l.segments, func(s *segment) bool { return s.id.Number == v.number && s.first == nil })
	if empty && v.gen == 0 {
		return l.files.remove([]version{v})
	}
	name := v.name()
	if err := l.files.fs.Rename(l.files.path(name), l.files.path(AsidePrefix+timeline.String()+"-"+name)); err != nil {
		return unavailable("set "+name+" aside", err)
	}
	return nil
}

// goOn sets the end of the log to that of t, and makes the last record there durable. It
// returns the place of the record's segment in the list.
func (l *Log) goOn(t Tail) (i int, err error) {
	i = slices.IndexFunc(l.segments, func(s *segment) bool { return s.id.Number == t.At.Segment })
	if i < 0 {
		return 0, damaged("there is no segment %d to go on in", t.At.Segment)
	}
	l.id, l.at, l.next, l.times = l.segments[i].id, t.At, t.Next, t.Times
	l.durable = t.At
	if l.handles.generation(l.id.Number) > 0 { // packed, and so durable; its successor was lost
		l.id.Size = 0 // nothing is appended to it
		return i, nil
	}
	name := segmentName(l.id.Number)
	f, err := l.files.fs.OpenReadWrite(l.files.path(name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return i, unavailable("open segment "+name, err)
	}
	l.f = &pageFile{File: f}
	// Write the pages of the last record, or as much of them as a cut file still has. That
	// need not be whole pages, so the write goes through the cache.
	from, to := t.At.Start/pageLen*pageLen, min((t.At.End+pageLen-1)/pageLen*pageLen, l.segments[i].size)
	last := make([]byte, to-from)
	if err := readFull(f, last, int64(from)); err != nil {
		return i, err
	}
	l.page = append(make([]byte, 0, pageLen), last[t.At.End/pageLen*pageLen-from:t.At.End-from]...)
	if _, err = f.WriteAt(last, int64(from)); err == nil {
		err = f.SyncData()
	}
	if err != nil {
		return i, unavailable("write the last group again", err)
	}
	l.f = pagesOf(f)
	return i, nil
}
