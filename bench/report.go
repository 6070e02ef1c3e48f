package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/internal/report"
)

// measured is what a run came to, as it is kept: the lines of -json, or what -soak and -steady print.
type measured struct {
	about
	lines []measure.Line
	time  series
}

// series is what -soak and -steady print: a line for each second or minute.
type series struct {
	columns []string
	rows    [][]float64
	said    []string // below
}

func (s series) column(name string) int { return slices.Index(s.columns, name) }

// read reads what a run has left. The name of the file says the commit where the file does not.
func read(name string) (m measured, err error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return m, err
	}
	if of := regexp.MustCompile(`-([0-9a-f]{7,})\.\w+$`).FindStringSubmatch(filepath.Base(name)); of != nil {
		m.Commit = of[1]
	}
	if bytes.HasPrefix(raw, []byte("{")) {
		err = m.readJSON(raw)
	} else {
		err = m.readText(string(raw))
	}
	if err == nil && len(m.lines) == 0 && len(m.time.rows) == 0 {
		err = errors.New("it has no figures")
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func (m *measured) readJSON(raw []byte) error {
	n := 0
	for line := range bytes.Lines(raw) {
		n++
		var l struct {
			measure.Line
			About *about `json:"about"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case l.About != nil:
			m.about = *l.About
		case l.Case == "":
			return fmt.Errorf("line %d names no case: it is no line of go run ./bench -json", n)
		default:
			m.lines = append(m.lines, l.Line)
		}
	}
	return nil
}

// json is what [measured.readJSON] reads.
func (m *measured) json() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	err := enc.Encode(struct {
		About about `json:"about"`
	}{m.said()})
	for _, l := range m.lines {
		err = errors.Join(err, enc.Encode(l))
	}
	return b.Bytes(), err
}

// readText reads what -soak and -steady print: perhaps what the machine is, then names of columns, which are two
// spaces apart, then figures, and then what was checked.
func (m *measured) readText(text string) error {
	apart := regexp.MustCompile(`  +`)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if head, rest, ok := strings.Cut(line, " "); ok && m.time.columns == nil {
			about := map[string]*string{"machine": &m.Machine, "system": &m.System, "disk": &m.Disk}[head]
			if about != nil {
				*about = strings.TrimSpace(rest)
				continue
			}
		}
		if line == "" {
			continue
		}
		if m.time.columns == nil {
			if m.time.columns = apart.Split(line, -1); m.time.column("p50 µs") < 0 || m.time.column("p99 µs") < 0 {
				return fmt.Errorf("%.80q names no columns p50 µs and p99 µs: it is not what go run ./bench prints with -soak or -steady", line)
			}
			continue
		}
		var row []float64
		for _, field := range strings.Fields(line) {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				row = nil
				break
			}
			row = append(row, v)
		}
		if len(row) == len(m.time.columns) {
			m.time.rows = append(m.time.rows, row)
		} else {
			m.time.said = append(m.time.said, line)
		}
	}
	return nil
}

// overTime is latency over time, with a mark for each line in which a memtable was flushed.
func (s series) overTime() report.Lines {
	p := report.Lines{Title: "Latency over time, 64 callers", X: report.Axis{Name: "seconds"}, Y: report.Axis{Name: "µs"}, MarkName: "a flush"}
	for _, name := range []string{"p50 µs", "p99 µs"} {
		p.Lines = append(p.Lines, s.line(name))
	}
	if flushes := s.column("flushes"); flushes >= 0 {
		for _, row := range s.rows {
			if row[flushes] > 0 {
				p.Marks = append(p.Marks, row[0])
			}
		}
	}
	return p
}

func (s series) line(name string) report.Line {
	l := report.Line{Name: name}
	if at := s.column(name); at >= 0 {
		for _, row := range s.rows {
			l.Points = append(l.Points, [2]float64{row[0], row[at]})
		}
	}
	return l
}

// plots are those of a series.
func (s series) plots() []report.Plot {
	most := report.Lines{Title: "The slowest of each line, and p99", X: report.Axis{Name: "seconds"}, Y: report.Axis{Name: "µs", Log: true}, Lines: []report.Line{s.line("p99 µs"), s.line("max µs")}}
	memory := report.Lines{Title: "Memory and disk over time", X: report.Axis{Name: "seconds"}, Y: report.Axis{Name: "MiB"}}
	for _, name := range s.columns {
		if strings.HasSuffix(name, " MiB") {
			memory.Lines = append(memory.Lines, s.line(name))
		}
	}
	return []report.Plot{s.overTime(), most, memory}
}

// plot is the one that -svg writes.
func (m *measured) plot() report.Plot {
	if len(m.time.rows) > 0 {
		return m.time.overTime()
	}
	return throughput(m.lines)
}

// said is what a run says of itself, with what stands beside the rows of its table.
func (m *measured) said() about {
	a := m.about
	a.Facts = slices.Clone(a.Facts)
	for _, l := range m.lines {
		if l.Note != "" {
			a.Facts = append(a.Facts, fmt.Sprintf("%s, %d × %d bytes: %s", l.Case, l.Writers, l.Bytes, l.Note))
		}
	}
	return a
}

func known(s string) string {
	return cmp.Or(s, "the file does not say")
}

// page is the report.
func (m *measured) page() ([]byte, error) {
	facts := [][2]string{{"commit", known(m.Commit)}, {"machine", known(m.Machine)}, {"system", known(m.System)}, {"disk", known(m.Disk)}}
	if !m.Began.IsZero() {
		facts = append(facts, [2]string{"began", m.Began.UTC().Format(time.DateTime) + " UTC"})
	}
	if m.Rounds > 0 {
		facts = append(facts, [2]string{"rounds", fmt.Sprintf("%d of %s a case", m.Rounds, m.Slice)})
	}
	about := report.Section{Facts: facts}
	if len(m.time.rows) > 0 {
		about.Say = []string{"64 callers append, or make whole calls, and each line of the table is a second or a minute of that. " +
			"With -steady they call at a fixed rate, and a call's time begins when it is due, so a stall counts against every call that it held up. " +
			"What must stay flat over hours is the tail and the memory; the disk may grow with what is kept alone."}
		table := report.Table{Name: "Each line", Rows: [][]string{m.time.columns}}
		for _, row := range m.time.rows {
			var cells []string
			for _, v := range row {
				cells = append(cells, strconv.FormatFloat(v, 'f', -1, 64))
			}
			table.Rows = append(table.Rows, cells)
		}
		return report.Of("Latency over time", "", []report.Section{about,
			{Heading: "Plots", Plots: m.time.plots(), Say: m.time.said},
			{Heading: "Figures", Tables: []report.Table{table}},
			again("go run ./bench -steady 2h > FILE", "go run ./bench -soak 10000000 > FILE"),
		})
	}
	about.Say = []string{"The limit is one goroutine that takes the bytes of all waiting writers, writes them with one pwrite and calls fdatasync once, on the same disk and with as many writers and bytes as the case. " +
		"In each round every case runs for a slice of time, one after the other, and a ratio is the median over the rounds of the ratio within a round. " +
		"So compare the ratios and not the times of two runs: a machine that is slow for a minute changes the times alone."}
	table := report.Table{Name: "Each case", Rows: [][]string{header}}
	for _, l := range m.lines {
		table.Rows = append(table.Rows, cells(l))
	}
	return report.Of("What a call costs", "", []report.Section{about,
		{Heading: "Plots", Plots: plots(m.lines)},
		{Heading: "Figures", Tables: []report.Table{table}, Say: m.said().Facts},
		again("go run ./bench -json > FILE"),
	})
}

// again says how to make the report.
func again(measure ...string) report.Section {
	return report.Section{Heading: "How to repeat it", Say: []string{"The first commands measure, on your machine. The last makes this page of what they left."},
		Commands: append(measure, "go run ./bench -from FILE -html report.html")}
}
