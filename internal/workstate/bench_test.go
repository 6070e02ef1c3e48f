package workstate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

type row struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func rows(n int) []row {
	out := make([]row, n)
	for i := range out {
		out[i] = row{i, "a line of what an agent keeps"}
	}
	return out
}

// BenchmarkSession: one item more in a slice, a snapshot of it with its digest, and back.
// Beside it, a deep copy of the items in both directions.
func BenchmarkSession(b *testing.B) {
	for _, size := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("items=%d/session", size), func(b *testing.B) {
			state, err := workstate.New(bg, workstate.NewSession(), &workstate.Registry{}, workstate.Options{})
			must(b, err)
			must(b, state.Update(bg, "fill", func(_ context.Context, tx *workstate.Tx) error {
				return workstate.Slice[row](tx.Session()).Append(rows(size)...)
			}))
			before, err := state.Snapshot(bg, workstate.SnapshotOptions{}, "")
			must(b, err)
			s := &split{b: b}
			for b.Loop() {
				s.rounds++
				must(b, state.Update(bg, "", func(_ context.Context, tx *workstate.Tx) error {
					return workstate.Slice[row](tx.Session()).Append(row{N: s.rounds})
				}))
				s.took(&s.snapshot, func() {
					_, err := state.Snapshot(bg, workstate.SnapshotOptions{}, "")
					must(b, err)
				})
				s.took(&s.restore, func() {
					_, err := state.Restore(bg, before, workstate.RestoreOptions{}, "")
					must(b, err)
				})
			}
			s.report(-1) // of a store: see BenchmarkCall
		})
		b.Run(fmt.Sprintf("items=%d/deep-copy", size), func(b *testing.B) {
			now, s := rows(size), &split{b: b}
			before, err := json.Marshal(now)
			must(b, err)
			for b.Loop() {
				s.rounds++
				now = append(now, row{N: s.rounds})
				var raw []byte
				s.took(&s.snapshot, func() {
					raw, err = json.Marshal(now)
					must(b, err)
				})
				s.took(&s.restore, func() {
					now = nil
					must(b, json.Unmarshal(before, &now))
				})
				if len(raw) <= len(before) {
					b.Fatal("the copy is not whole")
				}
			}
			s.report(int64(len(before)) * int64(s.rounds))
		})
	}
}

// BenchmarkCall: a call that changes one item, one key and one file of a state of a
// size, in memory and in a store, and what it adds to the store.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{1_000, 100_000, 1_000_000} {
		for _, where := range []string{"memory", "store"} {
			b.Run(fmt.Sprintf("items=%d/%s", size, where), func(b *testing.B) {
				o := workstate.Options{Uses: func(string, string) []string { return []string{} }}
				var w *world
				if where == "memory" {
					w = inMemory(b, o)
				} else {
					w = inStore(b, o)
				}
				must(b, w.state.Update(bg, "fill", func(_ context.Context, tx *workstate.Tx) error {
					kv, err := workstate.Use[*workstate.KV](tx)
					must(b, err)
					for i := range min(size, 10_000) {
						kv.Set(fmt.Sprint(i), []byte("value"))
					}
					return workstate.Slice[row](tx.Session()).Append(rows(size)...)
				}))
				w.tools["edit"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
					tx := workstate.FromContext(ctx)
					files, err := workstate.Use[*memfs.FS](tx)
					must(b, err)
					kv, err := workstate.Use[*workstate.KV](tx)
					must(b, err)
					kv.Set("7", []byte(newID().String()))
					must(b, files.WriteFile("file.txt", []byte(newID().String()), 0o644))
					return nil, workstate.Slice[row](tx.Session()).Append(row{})
				})
				b.ResetTimer()
				for b.Loop() {
					// The default budget of the world ends; a call under its own name does not.
					ctx := workstate.WithEvaluation(bg, newID().String()[:13])
					if _, res, err := w.call(ctx, "edit", `{}`); err != nil || res.Status != tga.StatusSuccess {
						b.Fatal(res.ErrorMessage, err)
					}
				}
				b.StopTimer()
				var bytes, n int64
				for _, c := range w.state.List() {
					if c.Kind == "call" {
						bytes, n = bytes+c.Bytes, n+1
					}
				}
				b.ReportMetric(float64(bytes)/float64(max(n, 1)), "stored-B/call")
			})
		}
	}
}

// fill writes files of 1 KiB, a hundred to a directory.
func fill(b *testing.B, dir string, files int) {
	b.Helper()
	for i := range files {
		path := filepath.Join(dir, fmt.Sprint("d", i/100), fmt.Sprint("f", i))
		must(b, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, fmt.Appendf(make([]byte, 1000), "%d", i), 0o644))
	}
}

// change writes ten of the files.
func change(b *testing.B, dir string, round int) {
	b.Helper()
	for i := range 10 {
		must(b, os.WriteFile(filepath.Join(dir, "d0", fmt.Sprint("f", i)), fmt.Appendf(make([]byte, 1000), "%d-%d", round, i), 0o644))
	}
}

// split times the two halves of an iteration.
type split struct {
	b                 *testing.B
	snapshot, restore time.Duration
	rounds            int
}

func (s *split) took(sum *time.Duration, f func()) {
	start := time.Now()
	f()
	*sum += time.Since(start)
}

func (s *split) report(stored int64) {
	n := float64(max(s.rounds, 1))
	s.b.ReportMetric(s.snapshot.Seconds()*1000/n, "snapshot-ms")
	s.b.ReportMetric(s.restore.Seconds()*1000/n, "restore-ms")
	if stored >= 0 {
		s.b.ReportMetric(float64(stored)/n, "stored-B/snapshot")
	}
}

// BenchmarkDirectory: ten files of a directory are changed; a snapshot, and back. Beside
// it, git stash in a repository of the directory's own, and a copy of the directory,
// neither of which is synced.
func BenchmarkDirectory(b *testing.B) {
	for _, files := range []int{100, 5_000, 50_000} {
		b.Run(fmt.Sprintf("files=%d/hostdir", files), func(b *testing.B) {
			dir, shadow := b.TempDir(), b.TempDir()
			fill(b, dir, files)
			d, err := hostdir.Open(bg, dir, shadow, hostdir.Options{})
			must(b, err)
			defer func() { must(b, d.Close()) }()
			n, err := d.Snapshot(bg)
			must(b, err)
			before, s := used(b, shadow), &split{b: b}
			for b.Loop() {
				s.rounds++
				change(b, dir, s.rounds)
				s.took(&s.snapshot, func() {
					_, err := d.Snapshot(bg)
					must(b, err)
				})
				s.took(&s.restore, func() { must(b, d.Restore(bg, n)) })
			}
			s.report(used(b, shadow) - before)
		})
		b.Run(fmt.Sprintf("files=%d/first-snapshot", files), func(b *testing.B) {
			dir := b.TempDir()
			fill(b, dir, files)
			for b.Loop() {
				d, err := hostdir.Open(bg, dir, b.TempDir(), hostdir.Options{})
				must(b, err)
				_, err = d.Snapshot(bg)
				must(b, err, d.Close())
			}
		})
		b.Run(fmt.Sprintf("files=%d/git-stash", files), func(b *testing.B) {
			dir := b.TempDir()
			fill(b, dir, files)
			git := func(args ...string) {
				cmd := exec.Command("git", append([]string{"-c", "user.name=b", "-c", "user.email=b@b", "-c", "gc.auto=0"}, args...)...)
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("git %v: %v\n%s", args, err, out)
				}
			}
			git("init", "-q")
			git("add", "-A")
			git("commit", "-q", "-m", "base")
			before, s := used(b, filepath.Join(dir, ".git")), &split{b: b}
			for b.Loop() {
				s.rounds++
				change(b, dir, s.rounds)
				s.took(&s.snapshot, func() { // and the directory goes on as it is
					git("stash", "push", "-q", "-u")
					git("stash", "apply", "-q")
				})
				s.took(&s.restore, func() {
					git("reset", "-q", "--hard")
					git("clean", "-fdq")
				})
			}
			s.report(used(b, filepath.Join(dir, ".git")) - before)
		})
		b.Run(fmt.Sprintf("files=%d/copy", files), func(b *testing.B) {
			dir, copies := b.TempDir(), b.TempDir()
			fill(b, dir, files)
			base, s := filepath.Join(copies, "base"), &split{b: b}
			must(b, os.CopyFS(base, os.DirFS(dir)))
			for b.Loop() {
				s.rounds++
				change(b, dir, s.rounds)
				snap := filepath.Join(copies, "snap")
				s.took(&s.snapshot, func() { must(b, os.CopyFS(snap, os.DirFS(dir))) })
				s.took(&s.restore, func() { must(b, os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(base))) })
				must(b, os.RemoveAll(snap))
			}
			s.report(used(b, base) * int64(s.rounds))
		})
	}
}

// used returns the bytes of the files below a directory.
func used(b *testing.B, dir string) (n int64) {
	b.Helper()
	must(b, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}

// BenchmarkDispatch: what a transaction adds to a dispatch that does nothing.
func BenchmarkDispatch(b *testing.B) {
	nothing := runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusSuccess}, nil
	})
	s, err := workstate.New(bg, workstate.NewSession(), &workstate.Registry{}, workstate.Options{})
	must(b, err)
	d := workstate.Transact(nothing, s)
	call := runtime.Call{TraceID: newID(), ToolCallID: newID(), Server: "s", Tool: "t"}
	b.ReportAllocs()
	for b.Loop() {
		_, err := d.Dispatch(bg, call)
		must(b, err)
	}
}
