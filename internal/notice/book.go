package notice

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tgad/tgad/internal/duty"
	"github.com/tgad/tgad/schemas/tga"
)

// book is the kept state of one receiver. It has the ids of traces and no content of them: that is in the
// store.
type book struct {
	Matters map[string]*entry `json:"matters"`
	Told    tga.Millis        `json:"told,omitempty"` // when the newest notice was taken
}

// entry is the state of a matter in the book.
type entry struct {
	First tga.Millis `json:"first"`           // when it was seen first
	Told  tga.Millis `json:"told,omitempty"`  // when it was told last; 0 = never
	Times int        `json:"times,omitempty"` // how often it was told
	// Offered says that the receiver may know of it: a notice was sent, and maybe taken.
	Offered bool `json:"offered,omitempty"`
}

// matterOf parses what [Matter.id] returns.
func matterOf(id string) (Matter, error) {
	part := append(strings.SplitN(id, " ", 3), "", "")
	trace, err := hex.DecodeString(part[1])
	if err != nil || len(trace) != len(tga.ID{}) {
		return Matter{}, fmt.Errorf("%.100q is no matter", id)
	}
	return Matter{Kind: part[0], TraceID: tga.ID(trace), About: part[2]}, nil
}

// readBook reads a book. If none is kept, or it cannot be read, the book is empty.
func readBook(raw []byte) (*book, error) {
	b := &book{Matters: map[string]*entry{}}
	if raw == nil {
		return b, nil
	}
	err := json.Unmarshal(raw, b)
	for id, e := range b.Matters {
		if _, bad := matterOf(id); bad != nil {
			err = errors.Join(err, bad)
		} else if e == nil {
			err = errors.Join(err, fmt.Errorf("nothing is known of %s", id))
		}
	}
	if err != nil {
		return &book{Matters: map[string]*entry{}}, err
	}
	if b.Matters == nil {
		b.Matters = map[string]*entry{}
	}
	return b, nil
}

// save keeps the book. A crash leaves the old or the new one.
func (b *book) save(ctx context.Context, in duty.Duty) error {
	raw, err := json.Marshal(b)
	if err == nil {
		err = in.Keep(ctx, append(raw, '\n'))
	}
	if err != nil {
		return fmt.Errorf("what was told is not kept: %w", err)
	}
	return nil
}
