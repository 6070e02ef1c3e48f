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

// book is what is remembered of one receiver, and kept. It names traces and no more: what they are about is
// in the store.
type book struct {
	Matters map[string]*entry `json:"matters"`
	Told    tga.Millis        `json:"told,omitempty"` // when the newest notice was taken
}

// entry is what is remembered of a matter.
type entry struct {
	First tga.Millis `json:"first"`           // when it was seen first
	Told  tga.Millis `json:"told,omitempty"`  // when it was told the last time; 0 = it was not
	Times int        `json:"times,omitempty"` // how often it was told
	// Offered says that the receiver may have heard of it: a notice was on its way, whether it was taken or not.
	Offered bool `json:"offered,omitempty"`
}

// matterOf reads [Matter.id] back.
func matterOf(id string) (Matter, error) {
	part := append(strings.SplitN(id, " ", 3), "", "")
	trace, err := hex.DecodeString(part[1])
	if err != nil || len(trace) != len(tga.ID{}) {
		return Matter{}, fmt.Errorf("%.100q is no matter", id)
	}
	return Matter{Kind: part[0], TraceID: tga.ID(trace), About: part[2]}, nil
}

// readBook reads a book; where nothing is kept it is empty. Beside an error it is empty too.
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

// save has the book kept, so that a crash leaves the old or the new one.
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
