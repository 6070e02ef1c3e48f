package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/notice"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime/client"
)

// TestFullDiskSilencesNobody: if the book cannot be written, people still get notices, and each matter is told
// once.
func TestFullDiskSilencesNobody(t *testing.T) {
	p := newPager(t)
	b := start(t, "")
	first := b.doubtful("k-1")
	b.stop()
	at := filepath.Join(b.data, "notify")
	if err := os.Mkdir(at, access.DirMode); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tgad", at, "tmpfs", 0, "size=4k"); err != nil {
		serial.Missing(t, "a file system that is full", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(at, "full"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	b.config += p.table(`after = "1ms"`)
	b.start()
	p.about(first, "new")
	second := b.doubtful("k-2")
	p.about(second, "new")
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got, err := client.Notify(t.Context(), b.client, false)
		if err == nil && strings.Contains(got.Receivers[0].Trouble, "no space left") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if all := p.until("all", func([]notice.Notice) bool { return true }); tells(all, first, "new") != 1 || tells(all, second, "new") != 1 {
		t.Errorf("told %+v", all)
	}
	b.stop()
}
