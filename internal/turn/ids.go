package turn

import (
	"encoding/binary"
	"strconv"

	"github.com/tgad/tgad/schemas/tga"
)

// derived returns the id of something that belongs to a turn. The id is the same each time, so
// after a crash the thing is found again and not begun anew. It is a UUIDv7 with the turn's own
// time, whose random bits are a digest.
func derived(turn tga.ID, what string, n ...int) tga.ID {
	name := append([]byte("tgad turn v1\x00"), turn[:]...)
	name = append(name, what...)
	for _, i := range n {
		name = binary.BigEndian.AppendUint64(append(name, 0), uint64(i))
	}
	sum := tga.Sum(name)
	id := tga.ID(sum[:16])
	copy(id[:6], turn[:6])
	return tga.MakeID(id)
}

// Keys of governed calls. A retry of a question is a new question with its own key. A retry of a
// tool call is a new attempt of the same call: the tool server sees the same key.
func questionKey(turn tga.ID, what string, attempt int) string {
	return "turn/" + turn.String() + "/" + what + "/" + strconv.Itoa(attempt)
}

func toolKey(turn tga.ID, index int) string {
	return "turn/" + turn.String() + "/tool/" + strconv.Itoa(index)
}
