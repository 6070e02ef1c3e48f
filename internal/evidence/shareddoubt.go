package evidence

import (
	"context"
	"fmt"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
)

// reload reads the whole tables again, and compares them with the newest checkpoint that this process knows. A database
// that was restored to an earlier time, or a standby that lacked the newest commits, has less than that.
func (s *shared) reload(ctx context.Context) error {
	known, _ := s.k.Newest()
	s.epoch.Store(0) // ask again before signing
	if err := s.load(ctx); err != nil {
		return err
	}
	s.unsure = false
	if known != nil {
		c, _, err := s.k.trusted().Open(known)
		if err != nil {
			return err
		}
		why, err := s.k.compare(ctx, c)
		if err == nil && why != "" {
			err = s.k.find("the newest checkpoint that this process has seen", finding{c.Size, c.Head, why})
		}
		if err != nil {
			return err
		}
	}
	if newest, _ := s.k.Newest(); newest != nil {
		if _, err := s.k.compareKept(ctx, newest); err != nil {
			return err
		}
	}
	s.k.showNewest()
	return nil
}

// doubt finds out whether the order contradicts a checkpoint, or only the kept tiles do. In both cases somebody has
// changed rows.
func (s *shared) doubt(ctx context.Context, c checkpoint.Checkpoint, why string) (string, error) {
	if c.Size > s.k.tree.Size() {
		return why, nil
	}
	t := tree.NewTiled(s.tiles)
	for l, err := range s.leaves(ctx, 0, uint64(c.Size)) {
		if err == nil {
			err = t.Append(&l)
		}
		if err != nil {
			return "", err
		}
		if len(t.Fresh()) > mostFresh { // the head does not need these tiles
			t.Kept(mostFresh)
		}
	}
	head, err := t.Head(c.Size)
	if err != nil || head != c.Head {
		return why, err
	}
	return fmt.Sprintf("its first %d appends are what was signed, and the tiles that are kept of their tree are not: rows of tgad.tiles were changed", c.Size), nil
}

// has says whether the tables have a checkpoint of so many leaves, or of more.
func (s *shared) has(ctx context.Context, size int64) bool {
	st, err := s.tables.Standing(ctx)
	if err != nil || st.Newest.Number == 0 {
		return err != nil // do not accuse the store after an error: the place is asked again
	}
	c, _, err := s.k.trusted().Open(st.Newest.Text)
	return err == nil && c.Size >= size
}

// beforeAccept locks turn, and repeats all comparisons: another process may have made the findings that a person accepts.
func (s *shared) beforeAccept() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*placeTime)
	defer cancel()
	s.turn.Lock()
	err := error(tga.Errorf(tga.ValidationError, "evidence: this process has no key that signs what is accepted: ask one that has"))
	if s.signs {
		err = s.reload(ctx)
	}
	if err == nil {
		err = s.k.compareAll(ctx)
	}
	if err == nil {
		err = s.k.follow(ctx)
	}
	if err != nil {
		s.turn.Unlock()
	}
	return err
}
