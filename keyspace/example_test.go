package keyspace_test

import (
	"bytes"
	"fmt"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// Keys sort by what they name: by trace, then by number. The bounds of a trace hold all of its entries and
// nothing else, so a store reads a trace with one scan.
func ExampleAppendEntry() {
	trace := tga.ID{0x01, 0x93, 0x6a, 0x8b, 0x4c, 0x2d, 0x70, 0, 0x80, 15: 1}
	other := tga.ID{0x01, 0x93, 0x6a, 0x8b, 0x4c, 0x2d, 0x70, 0, 0x80, 15: 2}
	ninth := keyspace.AppendEntry(nil, trace, 9)
	tenth := keyspace.AppendEntry(nil, trace, 10)
	fmt.Println("9 before 10:", bytes.Compare(ninth, tenth) < 0)

	lower, upper := keyspace.EntryBounds(trace)
	within := func(key []byte) bool { return bytes.Compare(lower, key) <= 0 && bytes.Compare(key, upper) < 0 }
	fmt.Println("within:", within(tenth), within(keyspace.AppendEntry(nil, other, 1)))

	id, seq, err := keyspace.ParseEntry(tenth)
	fmt.Println(id == trace, seq, err)
	_, _, err = keyspace.ParseEntry(tenth[:len(tenth)-1])
	fmt.Println(tga.CodeOf(err))
	// Output:
	// 9 before 10: true
	// within: true false
	// true 10 <nil>
	// STATE_CHECKSUM_MISMATCH
}
