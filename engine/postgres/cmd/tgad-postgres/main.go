// Command tgad-postgres has the verbs of tgad for a store in PostgreSQL. tgad starts it with the
// arguments that it was given, so it lies beside tgad or in PATH.
package main

import (
	"os"

	"github.com/tgad/tgad/engine/postgres/internal/serving"
)

func main() { os.Exit(serving.Database.Run("tgad-postgres")) }
