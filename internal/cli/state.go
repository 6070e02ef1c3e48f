package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// ParseState reads the name of a working state from the command line: an id or, for a fork,
// an id, a slash and the number of the fork.
func ParseState(name string) (id tga.ID, number uint32, err error) {
	text, fork, forked := strings.Cut(name, "/")
	if id, err = ParseID(text); err != nil || !forked {
		return id, 0, err
	}
	// 24 bits: a key of the store has the fork's number above the 40 bits of the boundary's.
	n, err := strconv.ParseUint(fork, 10, 24)
	if err != nil || fork != strconv.FormatUint(n, 10) {
		return id, 0, Usagef("state %q: want an id, or an id, a slash and a fork's number", name)
	}
	return id, uint32(n), nil
}

// stateName is the name of a working state as [ParseState] reads it.
func stateName(st workstate.Stored) string {
	if st.Number == 0 {
		return st.ID.String()
	}
	return fmt.Sprintf("%s/%d", st.ID, st.Number)
}

// WorkingStates prints the working states of a store.
func WorkingStates(s *Streams, list []workstate.Stored) error {
	if s.JSON {
		for _, st := range list {
			if err := s.Line(map[string]any{
				"state": stateName(st), "id": st.ID.String(), "number": st.Number, "root": st.Root.String(), "forked": st.Forked, "boundaries": st.Boundaries, "open": st.Open,
			}); err != nil {
				return err
			}
		}
		return nil
	}
	rows := make([][]string, 0, len(list))
	for _, st := range list {
		rows = append(rows, []string{stateName(st), st.Root.String()[:12], strconv.Itoa(st.Boundaries), strconv.Itoa(st.Open), st.Forked})
	}
	return s.Table([]string{"STATE", "ROOT", "BOUNDARIES", "OPEN", "FORKED AT"}, rows)
}

// boundaryLine is a boundary as JSON.
type boundaryLine struct {
	ID       string   `json:"id"`
	Kind     string   `json:"kind"`
	Name     string   `json:"name"`
	Server   string   `json:"server,omitempty"`
	TraceID  string   `json:"trace_id,omitempty"`
	Parent   string   `json:"parent,omitempty"`
	Standing string   `json:"standing"`
	Code     tga.Code `json:"code,omitempty"`
	Summary  string   `json:"summary,omitempty"`
	Recorded string   `json:"recorded"`
	Elapsed  float64  `json:"elapsed_seconds"`
	Bytes    int64    `json:"bytes"`
}

// standingOf says in one word what became of a transaction.
func standingOf(c workstate.Checkpoint) string {
	switch {
	case c.Open:
		return "open"
	case c.Success:
		return "kept"
	}
	return "undone"
}

// Boundaries prints the boundaries of a working state, oldest first.
func Boundaries(s *Streams, list []workstate.Checkpoint) error {
	if s.JSON {
		for _, c := range list {
			if err := s.Line(lineOf(c)); err != nil {
				return err
			}
		}
		return nil
	}
	rows := make([][]string, 0, len(list))
	for _, c := range list {
		rows = append(rows, []string{
			c.Recorded.Format(time.RFC3339), c.ID, c.Kind, Shorten(c.Name, 32), standingOf(c), string(c.Code),
			c.Elapsed.Round(time.Millisecond).String(), strconv.FormatInt(c.Bytes, 10),
		})
	}
	return s.Table([]string{"TIME", "ID", "KIND", "NAME", "CHANGES", "CODE", "TOOK", "BYTES"}, rows)
}

func lineOf(c workstate.Checkpoint) boundaryLine {
	return boundaryLine{
		ID: c.ID, Kind: c.Kind, Name: c.Name, Server: c.Server, TraceID: c.TraceID, Parent: c.Parent, Standing: standingOf(c),
		Code: c.Code, Summary: c.Summary, Recorded: c.Recorded.Format(time.RFC3339Nano), Elapsed: c.Elapsed.Seconds(), Bytes: c.Bytes,
	}
}

// Places prints where the outside resources of a working state are.
func Places(s *Streams, places map[string]workstate.Place) error {
	rows := make([][]string, 0, len(places))
	for _, name := range slices.Sorted(maps.Keys(places)) {
		p := places[name]
		if s.JSON {
			if err := s.Line(map[string]any{"resource": name, "kind": p.Kind, "path": p.Path, "aside": p.Aside}); err != nil {
				return err
			}
			continue
		}
		path := p.Path
		if p.Kind == "" {
			path = "known to its own program alone"
		}
		rows = append(rows, []string{name, p.Kind, path, p.Aside})
	}
	if s.JSON || len(rows) == 0 {
		return nil
	}
	s.Printf("\n")
	return s.Table([]string{"RESOURCE", "KIND", "PATH", "ASIDE"}, rows)
}

// Changes prints the parts in which two working states differ.
func Changes(s *Streams, list []workstate.Change) error {
	rows := make([][]string, 0, len(list))
	for _, c := range list {
		if s.JSON {
			if err := s.Line(map[string]any{
				"part": c.Part, "from": c.From.String(), "to": c.To.String(), "from_items": c.FromItems, "to_items": c.ToItems,
			}); err != nil {
				return err
			}
			continue
		}
		items := ""
		if strings.HasPrefix(c.Part, "slice ") {
			items = fmt.Sprintf("%d to %d", c.FromItems, c.ToItems)
		}
		rows = append(rows, []string{c.Part, short(c.From), short(c.To), items})
	}
	if s.JSON {
		return nil
	}
	return s.Table([]string{"PART", "FROM", "TO", "ITEMS"}, rows)
}

// FileChange is a path in which two snapshots of a directory differ.
type FileChange struct {
	Resource string `json:"resource,omitempty"`
	Status   string `json:"status"` // A added, D deleted, M content or mode, T type
	Path     string `json:"path"`
}

// FileChanges prints paths.
func FileChanges(s *Streams, list []FileChange) error {
	for _, c := range list {
		if s.JSON {
			if err := s.Line(c); err != nil {
				return err
			}
			continue
		}
		s.Printf("%s %s\n", c.Status, Clean(c.Path))
	}
	return nil
}

// short returns the beginning of a digest, a dash for the zero one.
func short(d tga.Digest) string {
	if d == (tga.Digest{}) {
		return "-"
	}
	return d.String()[:12]
}

// RollbackPlan prints what a rollback will do: the parts it restores, the calls it takes
// back, and the effects outside that it can't take back.
func RollbackPlan(s *Streams, p *workstate.Plan) error {
	if s.JSON {
		restored, undone, standing := []string{}, []boundaryLine{}, []map[string]any{}
		for _, c := range p.Restored {
			restored = append(restored, c.Part)
		}
		for _, c := range p.Undone {
			undone = append(undone, lineOf(c))
		}
		for _, e := range p.Standing {
			standing = append(standing, map[string]any{"id": e.ID, "name": e.Name, "server": e.Server, "compensation": e.Compensation})
		}
		return s.Line(map[string]any{"to_before": p.To.ID, "restored": restored, "undone": undone, "standing": standing})
	}
	s.Printf("back to before %s %s\n\nrestored:\n", Clean(p.To.Name), Clean(p.To.ID))
	if err := Changes(s, p.Restored); err != nil {
		return err
	}
	s.Printf("\nundone, newest first:\n")
	if err := Boundaries(s, p.Undone); err != nil {
		return err
	}
	s.Printf("\neffects outside that stand:\n")
	rows := make([][]string, 0, len(p.Standing))
	for _, e := range p.Standing {
		how := cmp.Or(e.Compensation, "can't be made up for")
		rows = append(rows, []string{e.ID, e.Server, e.Name, how})
	}
	return s.Table([]string{"ID", "SERVER", "TOOL", "COMPENSATION"}, rows)
}
