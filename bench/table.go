package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/tgad/tgad/bench/internal/measure"
)

// printTable prints the lines for people.
func printTable(out io.Writer, about string, lines []measure.Line, facts []string) error {
	if _, err := fmt.Fprintln(out, about); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "case\twriters\tbytes\tp50 µs\tp99 µs\tp999 µs\tper second\tfsyncs\tbytes written\tallocs\tCPU µs\tp50 ratio\trate ratio\t")
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.0f\t%.3f\t%.0f\t%.0f\t%.1f\t%.2f\t%.3f\t  %s\n", l.Case, l.Writers, l.Bytes,
			l.P50, l.P99, l.P999, l.PerSec, l.Syncs, l.BytesWritten, l.Allocs, l.CPU, l.P50Ratio, l.ThroughputRatio, l.Note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, fact := range facts {
		if _, err := fmt.Fprintln(out, fact); err != nil {
			return err
		}
	}
	return nil
}
