//go:build unix && !linux

package doctor

import "os"

func dataSync(f *os.File) error { return f.Sync() }

func processState(string) string { return "" }
