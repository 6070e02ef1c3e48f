//go:build unix

package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// killAtPoints is part 3: SIGKILL at seeded points of a call, for a tool that honours
// keys and for one that does not. The two worlds run side by side.
func (s *show) killAtPoints(ctx context.Context) error {
	s.title(fmt.Sprintf("kill -9 at %d points of a call, for two tools", s.Points))
	if err := s.opaque.start(ctx); err != nil {
		return err
	}
	s.text("   %s", s.dim("charge         honours keys, licence dedupe_key: may be sent again"))
	s.text("   %s", s.dim("charge_opaque  ignores keys, licence park: never sent again"))
	s.text("   %s", s.dim("left: the window (below) in which the log says the kill came"))
	s.text("   %s", s.dim("$ is the charges of the key; 0? and 1? are those of a call in doubt"))
	s.text("\n   %s", s.bold(fmt.Sprintf(hitFormat, "", "tool", "killed", "left", "recovery", "$", "seq")))

	all, err := s.strikeAll(ctx)
	if err != nil {
		return err
	}
	found := map[string]map[string]int{}
	var wrong []string
	var most, sum uint64
	doubt := 0
	for _, h := range all {
		if found[h.Window] == nil {
			found[h.Window] = map[string]int{}
		}
		found[h.Window][h.Tool]++
		most, sum = max(most, h.Charges), sum+h.Charges
		if h.InDoubt {
			doubt++
		}
		if !h.OK {
			wrong = append(wrong, fmt.Sprintf("%s %d: %s", h.Tool, h.Point, h.Wrong))
		}
	}
	s.text("")
	hitWindows := 0
	for _, w := range windows {
		n := found[w.name]
		if len(n) > 0 {
			hitWindows++
		}
		if s.json {
			s.line(struct {
				Part   int            `json:"part"`
				Window string         `json:"window"`
				Kills  map[string]int `json:"kills"`
			}{s.part, w.name, n})
			continue
		}
		if w.name == "W3" && len(n) == 0 {
			s.text("   %s", s.dim("W3  (call and attempt are one entry: there is nothing between them)"))
			continue
		}
		s.text("   %s  %-34s %3d charge %3d charge_opaque", w.name, w.text, n["charge"], n["charge_opaque"])
	}
	s.step("journal", "%d calls, %d charges, %d in doubt", len(all), sum, doubt)
	s.claim(most <= 1, "no kill led to a second charge", "a key with %d charges", most)
	s.claim(len(wrong) == 0, "each call completed with one charge, or is shown in doubt", "%s", strings.Join(wrong, "; "))
	if s.Points >= len(triggers) {
		s.claim(hitWindows >= 4, "the kills hit at least four of the windows", "%d windows", hitWindows)
	}
	return nil
}

// sides are the two worlds of part 3.
func (s *show) sides() []side { return []side{{s.charge, "charge"}, {s.opaque, "charge_opaque"}} }

type side struct {
	w    *world
	tool string
}

// strikeAll makes the kills of both worlds, side by side, and prints them point by
// point.
func (s *show) strikeAll(ctx context.Context) ([]hit, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sides := s.sides()
	hits := make([]chan hit, len(sides))
	var wg sync.WaitGroup
	for i, side := range sides {
		hits[i] = make(chan hit, s.Points) // large enough that a side never waits for the printing
		wg.Go(func() {
			defer close(hits[i])
			for _, p := range plan(s.Seed, side.tool, s.Points) {
				h, err := side.w.strike(ctx, side.tool, p)
				if err != nil {
					cancel(err) // the other side's next wait ends
					return
				}
				hits[i] <- h
			}
		})
	}
	var all []hit
	for range s.Points {
		for i := range sides {
			if h, ok := <-hits[i]; ok {
				all = append(all, h)
				s.hit(h)
			}
		}
	}
	wg.Wait()
	return all, context.Cause(ctx)
}

func (s *show) hit(h hit) {
	if s.json {
		s.line(h)
		return
	}
	charges := fmt.Sprint(h.Charges) + " "
	if h.InDoubt {
		charges = fmt.Sprint(h.Charges) + "?"
	}
	line := fmt.Sprintf(hitFormat, fmt.Sprint(h.Point), h.Tool, h.Killed, h.Window, h.Recovery, charges, fmt.Sprint(h.Seq))
	if !h.OK {
		line += "  " + s.paint("31", h.Wrong)
	}
	s.text("   %s", line)
}

// hitFormat is a line of part 3: 80 columns with its margin.
const hitFormat = "%2s  %-13s  %-18s  %-4s  %-25s  %-2s %s"
