package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/internal/segment"
)

// damage is one change to one file.
type damage struct {
	file string
	at   int
	cut  bool // the file ends at at; otherwise the byte there is xored with flip
	flip byte

	swap string // the whole file: "gone", or whose file of that name it is now
	by   []byte // what stands there then
}

// gone is the swap of a file that is taken away.
const gone = "gone"

func (d damage) String() string {
	if d.swap != "" {
		return fmt.Sprintf("%s is %s", d.file, d.swap)
	}
	if d.cut {
		return fmt.Sprintf("%s cut at %d", d.file, d.at)
	}
	return fmt.Sprintf("%s byte %d ^ %#02x", d.file, d.at, d.flip)
}

func (d damage) apply(b []byte) []byte {
	if d.swap != "" {
		return d.by
	}
	b = slices.Clone(b)
	if d.cut {
		return b[:d.at]
	}
	b[d.at] ^= d.flip
	return b
}

// in damages the store of an image.
func (d damage) in(fs vfs.FS) error {
	path := fs.PathJoin(Dir, d.file)
	if d.swap == gone {
		return errors.Join(fs.Remove(path), syncDir(fs, fs.PathDir(path)))
	}
	b, err := readFile(fs, path)
	if err == nil {
		err = writeFile(fs, path, d.apply(b))
	}
	return err
}

// Corrupt damages each file of a store, by one changed byte or one cut at a time, and
// demands that each damage is harmless, refused or reported (D1). perFile bounds how many
// bytes and cuts are tried per file; 0 = all. which selects the files; nil selects all. Each
// file is also deleted, replaced by its earlier content, and replaced by the file of that
// name from a store with the same life.
//
// It damages a store at two moments: after it was closed, and after it was killed with its
// page cache kept. A power cut is excluded: the watermark may then be a second behind, and
// damage to what was acknowledged within that second looks like a torn tail.
func (r *Run) Corrupt(s Scenario, seed uint64, perFile int, which func(name string) bool) {
	w := NewWorld(seed)
	p, err := w.Start(s.Conf)
	if err != nil {
		return // Explore reports it
	}
	early := s.live(r, p)
	killed := w.Crash(0)
	r.exports(p, seed, perFile)
	if err := p.DB.Close(); err != nil {
		return // likewise
	}
	others := map[string]vfs.FS{"an earlier one": early.FS}
	other := NewWorld(^seed)
	if p, err := other.Start(s.Conf); err == nil {
		s.live(r, p)
		others["another store's"] = other.Crash(0).FS
		if err := p.DB.Close(); err != nil {
			return // likewise
		}
	}
	for _, img := range []Image{killed, w.Crash(0)} {
		r.corruptImage(img, s, seed, perFile, which, others)
	}
}

// live plays the life of a store that is damaged afterwards. It returns the store's disk as
// it was in the middle of that life.
func (s Scenario) live(r *Run, p *Process) (early Image) {
	s.play(p)
	// What is ended now is archived, what follows is not.
	if _, err := p.DB.SealTraces(context.Background(), start+1); err != nil {
		r.report(p.World.Crash(0), s.Name, []Violation{{Property: "D1", Detail: "seal: " + err.Error()}})
	}
	early = p.World.Crash(0)
	p.World.Advance(time.Second)
	s.play(p)
	return early
}

func (r *Run) corruptImage(img Image, s Scenario, seed uint64, perFile int, which func(name string) bool, others map[string]vfs.FS) {
	sound := img.World()
	p, bad := r.reopen(sound, s)
	if p == nil || len(bad) > 0 {
		r.report(img, s.Name+", undamaged", bad)
		return
	}
	want := p.Observe()
	if err := p.DB.Close(); err != nil {
		r.report(img, s.Name+", undamaged", []Violation{{Property: "D1", Detail: err.Error()}})
		return
	}
	rng := rand.New(rand.NewPCG(seed, 11))
	var list, swaps []damage
	for _, name := range filesOf(img.FS) {
		b, err := readFile(img.FS, img.FS.PathJoin(Dir, name))
		if err == nil && (which == nil || which(name)) {
			// The zeros that a file is filled with ahead hold nothing: trying a few is enough.
			used := min(len(b), len(bytes.TrimRight(b, "\x00"))+64)
			list = append(list, damages(name, used, perFile, rng)...)
			swaps = append(swaps, swapped(name, b, others)...)
		}
	}
	list = append(swaps, list...) // they are few, and a short run has them too
	// An Open that finds damage waits seconds for Pebble to end, so run many at once.
	r.eachOf(64, len(list), func(i int) {
		d := list[i]
		c := img
		c.FS = img.FS.CrashClone(vfs.CrashCloneCfg{})
		if err := d.in(c.FS); err != nil {
			r.report(c, d.String(), []Violation{{Property: "D1", Detail: err.Error()}})
			return
		}
		r.Counts.add(&r.Counts.Corruptions, 1)
		done := r.at(c, s.Name+", "+d.String())
		bad := corrupted(c, s, want, sameLog)
		done()
		if len(bad) > 0 && bad[0].Property != "L1" { // a hang sends nothing and is not silent
			r.Counts.add(&r.Counts.CorruptionsSilent, 1)
		}
		r.report(c, s.Name+", "+d.String(), bad)
	})
}

func damages(name string, size, perFile int, rng *rand.Rand) (list []damage) {
	step := 1
	if perFile > 0 {
		step = max(1, size/perFile)
	}
	for at := rng.IntN(step); at < size; at += step {
		list = append(list, damage{file: name, at: at, flip: byte(1 + rng.IntN(255))}, damage{file: name, at: at, cut: true})
	}
	return list
}

// swapped returns the damages of a whole file: it is deleted, or replaced by that of another
// moment or store.
func swapped(name string, b []byte, others map[string]vfs.FS) []damage {
	list := []damage{{file: name, swap: gone}}
	for says, fs := range others {
		if by, err := readFile(fs, fs.PathJoin(Dir, name)); err == nil && !bytes.Equal(by, b) {
			list = append(list, damage{file: name, swap: says, by: by})
		}
	}
	return list
}

// digits changes one digit of each time to another digit. The file stays well-formed, so
// only a digest can reveal the change.
func digits(name string, b []byte, rng *rand.Rand) (list []damage) {
	for at := 0; ; {
		i := bytes.Index(b[at:], []byte(`"ts":"`))
		if i < 0 {
			return list
		}
		at += i + len(`"ts":"`)
		where := at + rng.IntN(4) // of the year: any is a time
		if where < len(b) && b[where] >= '0' && b[where] <= '9' {
			list = append(list, damage{file: name, at: where, flip: b[where] ^ ('0' + (b[where]-'0'+1+byte(rng.IntN(8)))%10)})
		}
	}
}

// corrupted opens a damaged store as a daemon does and returns what goes unnoticed. A store
// that reports no error must show the same as the sound one. A wrong send is a violation in
// any case.
func corrupted(img Image, s Scenario, want *Observed, same func(want, got *Observed) []Violation) []Violation {
	over := make(chan []Violation, 1)
	go func() { over <- opensDamaged(img, s, want, same) }()
	select {
	case bad := <-over:
		return bad
	case <-time.After(4 * patience):
		return []Violation{{Property: "L1", Detail: "a damaged store hangs"}}
	}
}

func opensDamaged(img Image, s Scenario, want *Observed, same func(want, got *Observed) []Violation) []Violation {
	w := img.World()
	p, err := w.Start(s.Conf)
	if err != nil {
		return sendsOf(w, want) // refused
	}
	defer func() { go func() { _ = p.DB.Close() }() }() // of a damaged store: its error is noticed above
	if p.DB.Stats().Frozen != "" {
		return sendsOf(w, want)
	}
	shown := p.noteEnded() != nil
	recovered, err := p.RT.RecoverAll(context.Background(), 4)
	shown = shown || err != nil
	for _, c := range recovered {
		shown = shown || c.Classified.Err != nil
	}
	got := p.Observe()
	shown = shown || got.Err != nil || len(got.Problems) > 0
	for _, t := range got.Traces {
		shown = shown || t.Err != nil
	}
	bad := sendsOf(w, want)
	if shown {
		return bad
	}
	for _, v := range append(same(want, got), Judge(w.Journal(), got)...) {
		v.Detail, v.Property = v.Property+": "+v.Detail, "D1"
		bad = append(bad, v)
	}
	return bad
}

// sendsOf judges the sends alone, by what the sound store says of the traces.
func sendsOf(w *World, want *Observed) (bad []Violation) {
	for _, v := range Judge(w.Journal(), want) {
		switch v.Property {
		case "S1", "S2", "S3", "S5":
			bad = append(bad, v)
		}
	}
	return bad
}

// exports damages an export and a segment of every trace.
func (r *Run) exports(p *Process, seed uint64, perFile int) {
	var export, sealed bytes.Buffer
	exported := 0
	sw, err := segment.NewWriter(&sealed, nil)
	for _, id := range traces(p.World.Journal()) {
		t := p.see(context.Background(), id)
		if t == nil || t.Err != nil || err != nil {
			continue
		}
		exported++
		if err = ndjson.Write(&export, id, all(t.Entries), all(t.Notes)); err == nil && t.state().Terminal() {
			st := segment.Trace{ID: id, Entries: t.Entries}
			for _, n := range t.Notes {
				st.Notes = append(st.Notes, segment.Note{Note: n})
			}
			err = sw.Add(&st)
		}
	}
	if err == nil {
		err = ndjson.End(&export, exported)
	}
	if err == nil {
		_, err = sw.Close()
	}
	if err != nil {
		r.report(p.World.Crash(0), "export", []Violation{{Property: "D1", Detail: err.Error()}})
		return
	}
	for _, f := range []struct {
		name   string
		b      []byte
		verify func([]byte) error
	}{
		{"export.ndjson", export.Bytes(), func(b []byte) error { _, err := ndjson.Verify(bytes.NewReader(b)); return err }},
		{"segment", sealed.Bytes(), func(b []byte) error {
			_, err := segment.Verify(bytes.NewReader(b), int64(len(b)), nil)
			return err
		}},
	} {
		if err := f.verify(f.b); err != nil {
			r.report(p.World.Crash(0), f.name, []Violation{{Property: "D1", Detail: "undamaged: " + err.Error()}})
			continue
		}
		rng := rand.New(rand.NewPCG(seed, 13))
		list := append(damages(f.name, len(f.b), perFile, rng), digits(f.name, f.b, rng)...)
		r.each(len(list), func(i int) {
			d := list[i]
			r.Counts.add(&r.Counts.Corruptions, 1)
			if d.cut && whole(f.b, d.at) || !d.cut && underNoDigest(f.b, d.at) {
				return
			}
			if f.verify(d.apply(f.b)) == nil {
				r.Counts.add(&r.Counts.CorruptionsSilent, 1)
				r.report(p.World.Crash(0), d.String(), []Violation{{Property: "D1", Detail: fmt.Sprintf("verifies: %.80q", d.apply(f.b)[max(0, d.at-40):])}})
			}
		})
	}
}

// underNoDigest reports whether a byte of an export is of the commit time or the lease
// epoch of an entry, which the store keeps beside what is hashed (docs/FORMAT.md).
func underNoDigest(b []byte, at int) bool {
	from := bytes.LastIndexByte(b[:at], '\n') + 1
	entry := bytes.Index(b[from:], []byte(`"entry":{`))
	return bytes.HasPrefix(b[from:], []byte(`{"kind":"entry","committed"`)) && entry > 0 && at < from+entry
}

// whole reports whether a cut removes only the newline after an export's last line.
func whole(b []byte, at int) bool { return at == len(b)-1 && b[at] == '\n' }
