package backup_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/backup"
	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

const place = "s3://bucket/prefix"

// bucketBench is a store whose backup is in a bucket.
func bucketBench(t *testing.T, segment uint32) (*bench, *fake) {
	b, f := newBench(t), newFake()
	b.service, b.segment = f, segment
	b.settings.Store(&backup.Settings{To: place, Spool: b.at("spool"), Every: time.Millisecond, Share: 100})
	b.open(b.at("data2"))
	return b, f
}

// pulled returns the number of traces in a store that is restored from the bucket, or -1 if there is no
// backup.
func (b *bench) pulled() int {
	b.Helper()
	dir := b.at("pulled")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		b.Fatal(err)
	}
	err := bucket.Pull(b.Context(), place, b.service, dir)
	if tga.CodeOf(err) == tga.NotFound {
		return -1
	}
	if err != nil {
		b.Fatal(err)
	}
	return b.restored(dir)
}

// TestOnlyWhatIsNewIsSent: the first backup is sent completely, later ones send only the new end of the
// current segment. It can be restored. After many backups the parts of a segment are put together, and
// objects that no backup names any more are deleted once they are old.
func TestOnlyWhatIsNewIsSent(t *testing.T) {
	b, f := bucketBench(t, 0)
	for range 20 {
		b.call()
	}
	if err := b.step(); err != nil {
		t.Fatal(err)
	}
	first := f.sent
	if n := b.pulled(); n != 20 || first == 0 {
		t.Fatalf("%d traces, %d bytes", n, first)
	}
	asked := f.asked
	if err := b.step(); err != nil || f.asked != asked {
		t.Errorf("nothing is new: %d requests, %v", f.asked-asked, err)
	}
	calls := 20
	for range 70 {
		before := f.puts
		b.call()
		calls++
		if err := b.step(); err != nil {
			t.Fatal(err)
		}
		if f.puts == before {
			t.Fatal("nothing was sent")
		}
	}
	if more := f.sent - first; more > 8*first {
		t.Errorf("the first backup has %d bytes, 70 calls later %d more were sent", first, more)
	}
	if n := b.pulled(); n != calls {
		t.Errorf("%d traces, want %d", n, calls)
	}
	all := len(f.all)
	f.later(time.Hour)
	b.call()
	if err := b.step(); err != nil {
		t.Fatal(err)
	}
	if n := b.pulled(); n != calls+1 || len(f.all) >= all {
		t.Errorf("%d traces, %d objects, there were %d", n, len(f.all), all)
	}
	// Somebody may still be reading objects that were named until a moment ago.
	f.set("data/young", nil)
	f.all["data/old"] = object{changed: f.now.Add(-time.Hour)}
	f.later(time.Hour)
	f.set("data/young", nil)
	b.call()
	calls++
	if err := b.step(); err != nil {
		t.Fatal(err)
	}
	if f.all["data/young"].tag == "" || len(f.all["data/old"].tag) > 0 || !f.all["data/old"].changed.IsZero() {
		t.Error("what is young was deleted, or what is old was not")
	}
	// The spool is only a cache.
	if err := os.RemoveAll(b.at("spool")); err != nil {
		t.Fatal(err)
	}
	sent := f.sent
	b.call()
	if err := b.step(); err != nil {
		t.Fatal(err)
	}
	if n := b.pulled(); n != calls+2 || f.sent-sent > first {
		t.Errorf("without the spool: %d traces, %d bytes sent", n, f.sent-sent)
	}
}

// TestSpoolBehindALink: the spool is where the link leads, and the link stays.
func TestSpoolBehindALink(t *testing.T) {
	b, _ := bucketBench(t, 0)
	if err := errors.Join(os.Mkdir(b.at("disk"), 0o700), os.Mkdir(b.at("disk/spool"), 0o700), os.Symlink(b.at("disk/spool"), b.at("spool"))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.call()
		if err := b.step(); err != nil {
			t.Fatal(err)
		}
	}
	if to, err := os.Readlink(b.at("spool")); err != nil || to != b.at("disk/spool") {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	if _, err := os.Stat(b.at("disk/spool/log")); err != nil {
		t.Error(err)
	}
}

// TestSpoolOfAKilledProcessIsTaken: a process may be killed when its first backup is in the spool under its
// name, the lock file is still there, and the bucket has nothing of it. The next process takes this spool
// over. A foreign file in the spool is still refused.
func TestSpoolOfAKilledProcessIsTaken(t *testing.T) {
	b, f := bucketBench(t, 1<<20)
	b.call()
	if err := b.step(); err != nil {
		t.Fatal(err)
	}
	b.call()
	f.fault = func(_ int, what string) fault {
		if what == "put" {
			return refused
		}
		return none
	}
	if err := b.step(); err == nil { // the spool is ahead of the bucket from here on
		t.Fatal("it was sent")
	}
	f.fault = nil
	file := func(name string) string { return filepath.Join(b.at("spool"), name) }
	for _, name := range []string{"making.lock", "somebody's"} {
		if err := os.WriteFile(file(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.again()
	if err := b.step(); tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), "somebody's") {
		t.Errorf("a spool with a file of somebody else: %v", err)
	}
	if err := os.Remove(file("somebody's")); err != nil {
		t.Fatal(err)
	}
	if err := b.step(); err != nil {
		t.Fatal(err)
	}
	if n := b.pulled(); n != 2 {
		t.Errorf("%d traces are restored", n)
	}
}

// TestCrashAtEachRequest: the process ends at each of its requests, with the request executed or not. The
// bucket then has no backup yet, or one that can be restored and lacks nothing that the backup before had.
// The next process continues.
func TestCrashAtEachRequest(t *testing.T) {
	serial.Test(t)
	rounds := 8
	if serial.Whole() {
		rounds = 60
	}
	for _, fate := range []fault{refused, lost} {
		b, f := bucketBench(t, 64<<10)
		has, done, broken := -1, 0, 0
		for k := 1; done < rounds; k++ {
			b.call()
			if k%3 == 0 {
				f.later(time.Hour) // so that there is something to delete
			}
			if k%7 == 0 {
				if _, err := b.db.SealTraces(t.Context(), tga.MillisOf(time.Now())+1000); err != nil {
					t.Fatal(err)
				}
			}
			at := f.asked + 1 + k%12
			f.fault = func(n int, _ string) fault {
				if n >= at {
					return fate
				}
				return none
			}
			err := b.step()
			f.fault = nil
			if err == nil {
				done++
			} else if broken++; !errors.Is(err, errService) && !errors.Is(err, tga.StateConcurrentExecution) {
				t.Fatalf("request %d: %v", k, err)
			}
			n := b.pulled()
			if n < has || err == nil && n != int(b.n) {
				t.Fatalf("request %d, %v: the backup has %d traces, it had %d; %d calls", k, err, n, has, b.n)
			}
			has = n
			b.again() // the next process
		}
		if err := b.step(); err != nil {
			t.Fatal(err)
		}
		if n := b.pulled(); n != int(b.n) || broken < rounds/4 {
			t.Errorf("%d traces, want %d; %d were broken", n, b.n, broken)
		}
	}
}

// TestEveryLostObjectIsNamed: each object in turn is removed, cut and replaced.
func TestEveryLostObjectIsNamed(t *testing.T) {
	b, f := bucketBench(t, 64<<10)
	for range 3 {
		b.call()
		if err := b.step(); err != nil {
			t.Fatal(err)
		}
	}
	whole := maps.Clone(f.all)
	for _, name := range slices.Sorted(maps.Keys(whole)) {
		for what, spoil := range map[string]func(o object){
			"gone":    func(object) { delete(f.all, name) },
			"cut":     func(o object) { f.all[name] = object{body: o.body[:len(o.body)/2], tag: o.tag} },
			"another": func(o object) { f.all[name] = object{body: append(bytes.Clone(o.body[1:]), 7), tag: o.tag} },
		} {
			f.all = maps.Clone(whole)
			spoil(whole[name])
			dir := b.at("pulled")
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			err := bucket.Pull(t.Context(), place, f, dir)
			code := tga.StateChecksumMismatch
			if name == "BACKUP" && what == "gone" {
				code = tga.NotFound
			}
			if tga.CodeOf(err) != code || !strings.Contains(err.Error(), name) {
				t.Errorf("%s is %s: %v", name, what, err)
			}
			if _, err := os.Stat(b.at("pulled/BACKUP")); err == nil {
				t.Errorf("%s is %s: a backup was made", name, what)
			}
		}
	}
	if len(whole) < 4 {
		t.Errorf("only %d objects", len(whole))
	}
}

// TestTwoWritersOfOneBucket: another store is refused by its id. A copy of the store whose log went another
// way is refused by its log. A writer who writes meanwhile is noticed.
func TestTwoWritersOfOneBucket(t *testing.T) {
	b, f := bucketBench(t, 64<<10)
	b.call()
	if err := b.step(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.db.Close(), os.CopyFS(b.at("twin"), os.DirFS(b.at("data2")))); err != nil {
		t.Fatal(err)
	}
	b.open(b.at("data2"))
	b.call()
	if err := b.step(); err != nil {
		t.Fatal(err)
	}
	mine, mineDB := b.keeper, b.db
	refused := func(what, dir, spool string, code tga.Code, says string) {
		t.Helper()
		b.settings.Store(&backup.Settings{To: place, Spool: b.at(spool)})
		b.open(b.at(dir))
		b.call()
		if err := b.step(); tga.CodeOf(err) != code || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another store", "third", "spool3", tga.ValidationError, "holds the backup of store "+mineDB.Stats().StoreID.String())
	refused("a copy that went another way", "twin", "spool2", tga.ValidationError, "does not have")
	if n := b.pulled(); n != 2 {
		t.Errorf("%d traces", n)
	}
	// Somebody else writes between the read and the write.
	b.keeper, b.db = mine, mineDB
	b.settings.Store(&backup.Settings{To: place, Spool: b.at("spool")})
	b.call()
	f.fault = func(_ int, what string) fault {
		if what == "swap" {
			o := f.all["BACKUP"]
			f.all["BACKUP"] = object{o.body, "other", o.changed}
		}
		return none
	}
	if err := b.step(); tga.CodeOf(err) != tga.StateConcurrentExecution {
		t.Errorf("two at once: %v", err)
	}
	f.fault = nil
	if err := b.step(); err != nil {
		t.Errorf("alone again: %v", err)
	}
	// The answer to a write was lost and the client repeated it. So the new object is this process's own.
	b.call()
	f.fault = func(_ int, what string) fault {
		if what == "swap" {
			return twice
		}
		return none
	}
	if err := b.step(); err != nil || b.pulled() != int(b.n)-2 {
		t.Errorf("asked again: %v, %d traces", err, b.pulled())
	}
}

// TestStaleListDeletesNothingThatIsNamed: the list lacks the newest objects and has some that are gone, or
// it fails.
func TestStaleListDeletesNothingThatIsNamed(t *testing.T) {
	b, f := bucketBench(t, 64<<10)
	var old []string
	f.stale = func(all map[string]object) []string {
		was := old
		old = slices.Sorted(maps.Keys(all))
		return append(slices.Clone(was), "data/gone")
	}
	for range 6 {
		b.call()
		f.later(time.Hour)
		if _, err := b.db.SealTraces(t.Context(), tga.MillisOf(time.Now())+1000); err != nil {
			t.Fatal(err)
		}
		if err := b.step(); err != nil {
			t.Fatal(err)
		}
		if n := b.pulled(); n != int(b.n) {
			t.Fatalf("%d traces, want %d", n, b.n)
		}
	}
	if len(f.all) > 30 {
		t.Errorf("%d objects", len(f.all))
	}
}

// TestQuietStoreLeavesNothingInTheBucket: the content of an erased call is deleted from the bucket once it
// is old, although nothing more is appended. That holds if it was too young when the backup was made, if the
// service refused to delete it then, and if the process was killed before. The bucket is not listed without
// end, and a failure is reported once.
func TestQuietStoreLeavesNothingInTheBucket(t *testing.T) {
	for name, fail := range map[string]func(what string) bool{
		"young": func(string) bool { return false }, "no list": func(what string) bool { return what == "list" },
		"not deleted": func(what string) bool { return what == "delete" }, "killed": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b, f := bucketBench(t, 0)
			b.call()
			f.later(time.Hour)
			failing, lists, before := fail != nil, 0, f.fault
			f.fault = func(n int, what string) fault {
				if what == "list" {
					lists++
				}
				if failing && fail(what) {
					return refused
				}
				if before != nil {
					return before(n, what)
				}
				return none
			}
			steps := func(n int) {
				t.Helper()
				for range n {
					f.later(20 * time.Second)
					if err := b.step(); err != nil {
						t.Fatal(err)
					}
				}
			}
			steps(3)
			was := maps.Clone(f.all)
			delete(was, "BACKUP")
			if done, err := b.db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{chaintest.New(chaintest.Options{Seed: b.n}).ID}, Who: "me", Reason: "test"}); err != nil || done.Traces != 1 {
				t.Fatal(done, err)
			}
			steps(120)
			told := strings.Count(b.log.String(), "cannot be deleted")
			if failing = false; fail == nil {
				b.again()
			}
			steps(60)
			named := map[string]bool{}
			for _, parts := range b.head().Parts {
				for _, p := range parts {
					named["data/"+p.SHA256] = true
				}
			}
			for object := range was {
				if named[object] {
					delete(was, object)
				}
			}
			if len(was) == 0 {
				t.Error("the erasure left every object of the backup as it was")
			}
			for object := range f.all {
				if object != "BACKUP" && !named[object] {
					t.Errorf("%s is there still, and nobody names it", object)
				}
			}
			if want := 1; name != "young" && fail != nil && told != want {
				t.Errorf("told %d times: %s", told, b.log.String())
			}
			if lists > 60 {
				t.Errorf("%d lists", lists)
			}
			lists = 0
			steps(200)
			if lists > 0 {
				t.Errorf("%d lists of a bucket that has nothing to be deleted", lists)
			}
		})
	}
}

// head is the bucket's record of its backup.
func (b *bench) head() (h struct {
	Parts map[string][]struct{ SHA256 string }
}) {
	b.Helper()
	raw, _, _ := bytes.Cut(b.service.all["BACKUP"].body, []byte("\n"))
	if err := json.Unmarshal(raw, &h); err != nil {
		b.Fatal(err)
	}
	return h
}

// TestAddressOfABucket: no error repeats a secret of the address.
func TestAddressOfABucket(t *testing.T) {
	for address, want := range map[string][2]string{
		"s3://b": {"b", ""}, "s3://b/": {"b", ""}, "s3://b/p": {"b", "p/"}, "s3://b/p/q/": {"b", "p/q/"},
	} {
		if name, prefix, err := bucket.Parse(address); err != nil || name != want[0] || prefix != want[1] {
			t.Errorf("%s: %q %q %v", address, name, prefix, err)
		}
	}
	for _, bad := range []string{"", "s3://", "s3:///p", "http://b/p", "/b/p", "s3://u:secret@b/p", "s3://b/p?secret", "s3://b/p#secret", "s3://b//p"} {
		if _, _, err := bucket.Parse(bad); tga.CodeOf(err) != tga.ValidationError || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
