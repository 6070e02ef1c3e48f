package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/internal/search/searchtest"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRolesMayWhatTheyAreFor, each as an ordinary user that has the role and no other right.
func TestRolesMayWhatTheyAreFor(t *testing.T) {
	p := migrated(t)
	as := func(role string) string {
		return strings.Replace(pgserver.DSN(p), "//owner@", "//a_"+role+"@", 1)
	}
	for _, role := range []string{"writer", "reader", "auditor", "eraser"} {
		if err := p.Exec(fmt.Sprintf("CREATE ROLE a_%s LOGIN IN ROLE tgad_%s", role, role)); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, as("writer"), postgres.Options{})
	b, lease := begun(t, s)
	if _, err := s.WriteCheckpoint(bg, lease); err != nil {
		t.Errorf("checkpoint: %v", err)
	}
	if _, err := s.Append(bg, lease, b.End(tga.StatusSuccess)); err != nil {
		t.Errorf("append: %v", err)
	}
	s.Release(lease)
	onceThere(t, s, b, 4)
	e := s.Fleet().Evidence()
	epoch, err := e.Lead(bg)
	leaves := ordered(t, s, 4)
	if err == nil {
		err = e.Keep(bg, postgres.Keeping{Epoch: epoch, Kind: 1, Size: 1, Leaf: leaves[0], Key: "key", Note: note(1, "a"), Tiles: []postgres.Tile{{Hashes: make([]byte, 8192)}}})
	}
	duty := s.Fleet().Duty("d")
	if _, mine, err := duty.Take(bg); err != nil || !mine {
		t.Errorf("duty: %v, %v", mine, err)
	}
	if err := errors.Join(duty.Keep(bg, []byte("x")), duty.Leave(bg)); err != nil {
		t.Errorf("duty: %v", err)
	}
	lists := &listing{Store: s}
	lists.keep()
	if _, err := searchtest.Find(bg, lists.lists, search.Query{Limit: 1}); err != nil {
		t.Errorf("lists: %v", err)
	}
	lists.stop()
	if err := s.Fleet().RemoveLists(bg); err != nil {
		t.Errorf("lists: %v", err)
	}
	if err := errors.Join(err, s.Fleet().Freeze("a reason"), s.Fleet().Unfreeze(bg, true, "somebody"), s.Fleet().EndQuarantine(bg, "somebody"), e.Resign(bg, epoch)); err != nil {
		t.Errorf("evidence: %v", err)
	}

	for _, c := range []struct {
		role, statement string
		may             bool
	}{
		{"writer", "UPDATE tgad.entries SET parts = NULL", false},
		{"writer", "DELETE FROM tgad.entries", false},
		{"writer", "TRUNCATE tgad.entries", false},
		{"writer", "DELETE FROM tgad.ledger", false},
		{"writer", "UPDATE tgad.notes SET frame = ''", false},
		{"writer", "UPDATE tgad.leaves SET digest = ''", false},
		{"writer", "SELECT tgad.make_partition('2030-01-01')", false},
		{"writer", "UPDATE tgad.tiles SET hashes = hashes", false},
		{"writer", "DELETE FROM tgad.signed_notes", false},
		{"reader", "SELECT count(*) FROM tgad.tiles JOIN tgad.signed_notes USING (shard)", true},
		{"reader", "SELECT tgad.doubt(0, 'x')", false},
		{"writer", "DELETE FROM tgad.duties", false},
		{"reader", "SELECT kept FROM tgad.duties", true},
		{"reader", "SELECT count(tool) FROM tgad.lists, tgad.lists_standing, tgad.lists_again", true},
		{"reader", "DELETE FROM tgad.lists", false},
		{"reader", "SELECT tgad.count_lists()", false},
		{"auditor", "SELECT tool FROM tgad.lists", false},
		{"auditor", "SELECT tgad.clear_lists(0, 1, 1, 1)", false},
		{"eraser", "SELECT tool FROM tgad.lists", false},
		{"eraser", "DELETE FROM tgad.lists_again", false},
		{"eraser", "SELECT tgad.look_again(0, NULL, NULL)", false},
		{"writer", "INSERT INTO tgad.lists_again (shard, first, last) VALUES (0, gen_random_uuid(), gen_random_uuid())", false},
		{"reader", "UPDATE tgad.duties SET kept = NULL", false},
		{"reader", "SELECT tgad.remember(0, 'd', 1, 1, 'x')", false},
		{"auditor", "SELECT kept FROM tgad.duties", true},
		{"auditor", "SELECT tgad.lead(0, 'd', 1)", false},
		{"eraser", "SELECT kept FROM tgad.duties", false},
		{"auditor", "SELECT count(note) FROM tgad.signed_notes JOIN tgad.tiles USING (shard)", true},
		{"reader", "SELECT count(*) FROM tgad.entries JOIN tgad.leaves USING (shard, trace)", true},
		{"reader", "SELECT * FROM tgad.meta", false},
		{"reader", "UPDATE tgad.heads SET epoch = 9", false},
		{"reader", "SELECT tgad.look(0, '00000000-0000-7000-8000-000000000000')", false},
		{"auditor", "SELECT count(header) FROM tgad.entries", true},
		{"auditor", "SELECT count(record) FROM tgad.ledger JOIN tgad.leaves USING (shard)", true},
		{"auditor", "SELECT parts FROM tgad.entries", false},
		{"auditor", "SELECT value FROM tgad.attachments", false},
		{"eraser", "DELETE FROM tgad.entries", false},
		{"eraser", "UPDATE tgad.entries SET header = '' WHERE seq = 1", false},
		{"eraser", "UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE seq = 1", true},
	} {
		_, err := connect(t, as(c.role)).Exec(bg, c.statement)
		var e *pgconn.PgError
		refused := errors.As(err, &e) && e.Code == "42501"
		if c.may && err != nil || !c.may && !refused {
			t.Errorf("%s, %s: %v", c.role, c.statement, err)
		}
	}
}
