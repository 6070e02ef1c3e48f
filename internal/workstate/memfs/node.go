package memfs

import (
	"encoding/binary"
	"io/fs"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// A directory is a node whose data lists its entries by name and whose kids are their
// contents in the same order:
//
//	per entry   uvarint length, name, byte (0 file, 1 directory), perm[2] big-endian,
//	            uvarint size in bytes (0 for a directory)
//
// A file is a node of its bytes, or of kids of chunkSize bytes each where it is longer.
const chunkSize = 64 << 10

// item is a file or a directory.
type item struct {
	name string
	dir  bool
	perm fs.FileMode
	size int64
	node *workstate.Node
}

func dirOf(items []item) *workstate.Node {
	var b []byte
	kids := make([]*workstate.Node, 0, len(items))
	for _, it := range items {
		kind := byte(0)
		if it.dir {
			kind = 1
		}
		b = append(binary.AppendUvarint(b, uint64(len(it.name))), it.name...)
		b = binary.BigEndian.AppendUint16(append(b, kind), uint16(it.perm))
		b = binary.AppendUvarint(b, uint64(it.size))
		kids = append(kids, it.node)
	}
	return workstate.NewNode(b, kids...)
}

// itemsOf reads a directory.
func itemsOf(n *workstate.Node) ([]item, error) {
	bad := tga.Errorf(tga.StateChecksumMismatch, "node %s is no directory", n.Digest())
	b, kids := n.Data(), n.Kids()
	items := make([]item, 0, len(kids))
	for len(b) > 0 {
		length, size := binary.Uvarint(b)
		if size <= 0 || length > uint64(len(b)-size) {
			return nil, bad
		}
		name := string(b[size : size+int(length)])
		b = b[size+int(length):]
		if len(b) < 4 || len(items) == len(kids) || !fs.ValidPath(name) || strings.Contains(name, "/") {
			return nil, bad
		}
		it := item{name: name, dir: b[0] == 1, perm: fs.FileMode(binary.BigEndian.Uint16(b[1:])), node: kids[len(items)]}
		bytes, size := binary.Uvarint(b[3:])
		if size <= 0 || len(items) > 0 && items[len(items)-1].name >= name {
			return nil, bad
		}
		it.size, b = int64(bytes), b[3+size:]
		items = append(items, it)
	}
	if len(items) != len(kids) {
		return nil, bad
	}
	return items, nil
}

// entries reads a directory that was checked or made here.
func entries(n *workstate.Node) []item {
	items, err := itemsOf(n)
	if err != nil {
		panic(err)
	}
	return items
}

// check checks that a node is a valid directory, with everything below it.
func check(n *workstate.Node) error {
	items, err := itemsOf(n)
	if err != nil {
		return err
	}
	for _, it := range items {
		if it.dir {
			err = check(it.node)
		} else if got := len(content(it.node)); int64(got) != it.size {
			err = tga.Errorf(tga.StateChecksumMismatch, "file %s has %d bytes, its directory says %d", it.name, got, it.size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func fileOf(b []byte) *workstate.Node {
	if len(b) <= chunkSize {
		return workstate.NewNode(slices.Clone(b))
	}
	var kids []*workstate.Node
	for chunk := range slices.Chunk(b, chunkSize) {
		kids = append(kids, workstate.NewNode(slices.Clone(chunk)))
	}
	return workstate.NewNode(nil, kids...)
}

// content returns a copy of a file's bytes.
func content(n *workstate.Node) []byte {
	out := slices.Clone(n.Data())
	for _, k := range n.Kids() {
		out = append(out, k.Data()...)
	}
	return out
}

var rootItem = item{name: ".", dir: true, perm: 0o755}

// find returns the item at a valid path.
func find(root *workstate.Node, name string) (item, bool) {
	at := rootItem
	at.node = root
	if name == "." {
		return at, true
	}
	for part := range strings.SplitSeq(name, "/") {
		if !at.dir {
			return item{}, false
		}
		items := entries(at.node)
		i, ok := search(items, part)
		if !ok {
			return item{}, false
		}
		at = items[i]
	}
	return at, true
}

func search(items []item, name string) (int, bool) {
	return slices.BinarySearchFunc(items, name, func(it item, name string) int { return strings.Compare(it.name, name) })
}

// set returns root with the item it at a path whose parent is a directory of root. A nil item
// removes the path.
func set(root *workstate.Node, name string, it *item) *workstate.Node {
	first, rest, deeper := strings.Cut(name, "/")
	items := entries(root)
	i, ok := search(items, first)
	switch {
	case deeper:
		items[i].node = set(items[i].node, rest, it)
	case it == nil && ok:
		items = slices.Delete(items, i, i+1)
	case it == nil:
	default:
		put := *it
		put.name = first
		if ok {
			items[i] = put
		} else {
			items = slices.Insert(items, i, put)
		}
	}
	return dirOf(items)
}
