//go:build !unix

package daemon

import (
	"io/fs"
	"net"
	goruntime "runtime"

	"github.com/tgad/tgad/schemas/tga"
)

func ownerOf(fs.FileInfo) (uid uint32, ok bool) { return 0, false }

func closeOnExec(int) {}

// socketPair refuses. On such a system, only a program that embeds package engine can read a store.
func socketPair() (near, far net.Conn, err error) {
	return nil, nil, tga.Errorf(tga.ValidationError, "tgad does not read a store on %s: copy the store to a Unix system", goruntime.GOOS)
}
