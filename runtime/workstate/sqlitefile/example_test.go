package sqlitefile_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/tgad/tgad/runtime/workstate/sqlitefile"
)

// A database goes back to what it had when a snapshot was taken. Whoever writes to it meanwhile is not disturbed.
func ExampleOpen() {
	if err := run(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2 rows, then 1
}

func run() error {
	ctx := context.Background()
	at, err := os.MkdirTemp("", "sqlitefile")
	if err != nil {
		return err
	}
	defer os.RemoveAll(at)
	path := filepath.Join(at, "agent.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE notes (text); INSERT INTO notes VALUES ('kept')"); err != nil {
		return err
	}
	file, err := sqlitefile.Open(ctx, path, filepath.Join(at, "scratch"))
	if err != nil {
		return err
	}
	defer file.Close()
	before, err := file.Snapshot(ctx)
	if err != nil {
		return err
	}
	var rows [2]int
	if _, err := db.ExecContext(ctx, "INSERT INTO notes VALUES ('of a call that is taken back')"); err != nil {
		return err
	}
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM notes").Scan(&rows[0]); err != nil {
		return err
	}
	if err := file.Restore(ctx, before); err != nil {
		return err
	}
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM notes").Scan(&rows[1]); err != nil {
		return err
	}
	fmt.Printf("%d rows, then %d\n", rows[0], rows[1])
	return nil
}
