// Command tgad-lab has the demonstration of tgad and its crash tests. The verbs demo and
// torture of tgad start it, so it lies beside tgad or in PATH.
package main

import "github.com/tgad/tgad/internal/lab"

func main() { lab.Main() }
