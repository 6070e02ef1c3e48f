package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tgad/tgad/bench/internal/measure"
)

// header names the columns of [cells].
var header = strings.Split("case,writers,bytes,p50 µs,p99 µs,p999 µs,per second,fsyncs,bytes written,allocs,CPU µs,p50 ratio,rate ratio", ",")

func cells(l measure.Line) []string {
	return strings.Split(fmt.Sprintf("%s\x00%d\x00%d\x00%.1f\x00%.1f\x00%.1f\x00%.0f\x00%.3f\x00%.0f\x00%.0f\x00%.1f\x00%.2f\x00%.3f", l.Case, l.Writers, l.Bytes,
		l.P50, l.P99, l.P999, l.PerSec, l.Syncs, l.BytesWritten, l.Allocs, l.CPU, l.P50Ratio, l.ThroughputRatio), "\x00")
}

// printTable prints the lines for people.
func printTable(out io.Writer, about string, lines []measure.Line, facts []string) error {
	if _, err := fmt.Fprintln(out, about); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, strings.Join(header, "\t")+"\t")
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t  %s\n", strings.Join(cells(l), "\t"), l.Note)
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
