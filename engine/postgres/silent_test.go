package postgres_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/schemas/tga"
)

// TestHostThatIsSilentIsPassedOver: the first host of the URL takes connections and says nothing, like a machine that is lost.
// The store is opened at the next host, long before its patience is over.
func TestHostThatIsSilentIsPassedOver(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(bg, 30*time.Second)
	defer cancel()
	dsn := fmt.Sprintf("postgres://owner@/postgres?host=%s,%s&target_session_attrs=read-write", dir, p.Dir)
	if _, err := postgres.OpenShards(ctx, dsn, postgres.Options{}); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("open shards: %v, want that it is no shard", err)
	}
	s, err := postgres.Open(ctx, dsn, postgres.Options{})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	begun(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestNewPasswordIsUsedForRoutes: the password of a daemon's user is changed in the database and in its file. The daemon goes on to
// hear where stores are.
func TestNewPasswordIsUsedForRoutes(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	if _, err := postgres.AddShard(bg, quiet, postgres.AddingShard{DSN: pgserver.DSN(p), Name: "one", URL: pgserver.DSN(p)}); err != nil {
		t.Fatal(err)
	}
	hba := "local all gateway scram-sha-256\nlocal all all trust\n"
	if err := os.WriteFile(filepath.Join(p.Dir, "data", "pg_hba.conf"), []byte(hba), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := p.Exec("CREATE ROLE gateway LOGIN PASSWORD 'old' IN ROLE tgad_writer", "SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	dsn := strings.Replace(pgserver.DSN(p), "//owner@", "//gateway@", 1)
	until(t, "a password is asked for", func() bool {
		c, err := pgx.Connect(bg, dsn)
		if err == nil {
			_ = c.Close(bg)
		}
		return err != nil
	})
	o, password := quiet, "old"
	o.Password = func() (string, error) { return password, nil }
	x, err := postgres.OpenShards(bg, dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	password = "new"
	if err := p.Exec("ALTER ROLE gateway PASSWORD 'new'"); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Place(bg, pgserver.DSN(p), quiet, postgres.Placing{Namespace: "b", Shard: "one"}); err != nil {
		t.Fatal(err)
	}
	x.Refresh(bg)
	if r := x.Routes(); r.Namespaces["b"] != 1 {
		t.Errorf("the store of a namespace is not known: %v", r.Namespaces)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}
