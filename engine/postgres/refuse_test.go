package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/schemas/tga"
)

// TestServersThatPromiseLessAreRefused at open, and while the store is open.
func TestServersThatPromiseLessAreRefused(t *testing.T) {
	p := server(t)
	refused := func(why string, o postgres.Options) {
		t.Helper()
		s, err := postgres.Open(bg, pgserver.DSN(p), o)
		if err == nil {
			err = errors.Join(errors.New("opened"), s.Close())
		}
		if tga.CodeOf(err) != tga.StoreUnavailable || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want refused because %s", err, why)
		}
	}
	refused("no tables", postgres.Options{})
	if err := postgres.Migrate(bg, pgserver.DSN(p)); err != nil {
		t.Fatal(err)
	}
	refused("synchronous_standby_names is empty", postgres.Options{RequireSync: true})
	set := func(setting, value string) {
		t.Helper()
		if err := p.Exec("ALTER SYSTEM SET "+setting+" = '"+value+"'", "SELECT pg_reload_conf()"); err != nil {
			t.Fatal(err)
		}
		until(t, setting, func() bool { return query(t, p, "SHOW "+setting) == value })
	}
	s := open(t, pgserver.DSN(p), postgres.Options{})
	b, lease := begun(t, s)
	for _, weak := range []string{"off", "local"} {
		set("synchronous_commit", weak)
		refused("synchronous_commit is "+weak, postgres.Options{})
		if _, err := s.Append(bg, lease, b.End(tga.StatusSuccess)); tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("append under synchronous_commit %s: %v", weak, err)
		}
	}
	set("synchronous_commit", "on")
	if _, err := s.Append(bg, lease, b.End(tga.StatusSuccess)); err != nil {
		t.Errorf("append once it is on again: %v", err)
	}
	for _, setting := range []string{"fsync", "full_page_writes"} {
		set(setting, "off")
		refused(setting, postgres.Options{})
		set(setting, "on")
	}
	if err := s.Close(); err != nil { // which may need another connection, and that looks at the version
		t.Error(err)
	}
	if err := p.Exec("UPDATE tgad.schema SET version = 1000"); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Open(bg, pgserver.DSN(p), postgres.Options{}); !errors.Is(err, tga.FormatTooNew) {
		t.Errorf("tables of a newer program: %v", err)
	}
}
