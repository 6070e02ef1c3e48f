package postgres

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestCachedTracesAreBounded: the cached traces of calls take so much memory, whether their arguments, their answers or their notes are
// long, and however many there are. The last used are kept.
func TestCachedTracesAreBounded(t *testing.T) {
	for name, fill := range map[string]func(*chain.Trace, []byte){
		"arguments": func(x *chain.Trace, b []byte) {
			x.Request, x.Call = &tga.Artifact{Canonical: b}, &tga.Artifact{Canonical: b}
		},
		"answers": func(x *chain.Trace, b []byte) { x.Documents = []chain.Document{{Data: b}} },
		"notes":   func(x *chain.Trace, b []byte) { x.Notes = []tga.Note{{Body: b}} },
	} {
		for _, each := range []int{100, 60 << 10, 400 << 10, 2 << 20} {
			s, b := &Store{views: newViews()}, make([]byte, each)
			for i := range 5000 {
				x := chain.NewTrace(tga.ID{byte(i >> 8), byte(i)})
				fill(x, b)
				s.keepView(view{trace: x, version: 1})
			}
			n, bytes := 0, 0
			s.views.each(func(_ tga.ID, v view) { n, bytes = n+1, bytes+v.size() })
			if bytes != s.views.bytes || bytes > viewsBytes || n > 4096 {
				t.Errorf("%s of %d bytes: %d traces of %d bytes, counted as %d", name, each, n, bytes, s.views.bytes)
			}
			last := tga.ID{4999 >> 8, 4999 & 255}
			if _, ok := s.views.get(last); ok != (each < mostOfView) {
				t.Errorf("%s of %d bytes: the last one is kept: %v", name, each, ok)
			}
			for i := range 5000 {
				s.views.remove(tga.ID{byte(i >> 8), byte(i)})
			}
			if s.views.bytes != 0 {
				t.Errorf("%d bytes are left", s.views.bytes)
			}
		}
	}
}
