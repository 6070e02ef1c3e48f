package machine

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tgad/tgad/internal/crashtest"
)

func TestRandomCommandsKeepEveryProperty(t *testing.T) {
	r := &crashtest.Run{SaveDir: t.TempDir()}
	rapid.Check(t, Sequence(r))
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}
