package cli

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Wrap breaks text into lines of at most width characters. The first line starts with
// lead, the others with as many spaces. A word longer than a line stands alone.
func Wrap(text, lead string, width int) string {
	indent := strings.Repeat(" ", utf8.RuneCountInString(lead))
	var b strings.Builder
	line := lead
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			b.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	b.WriteString(line)
	return b.String()
}

// HelpWidth is the longest line of a help text.
const HelpWidth = 100

// NarrowHelp breaks long lines in the usage text of a program and of each verb below it: cobra writes the
// description of a flag as one line.
func NarrowHelp(root *cobra.Command) {
	usage := root.UsageFunc()
	root.SetUsageFunc(func(c *cobra.Command) error {
		out := c.OutOrStderr()
		var said strings.Builder
		c.SetOut(&said)
		defer c.SetOut(out)
		if err := usage(c); err != nil {
			return err
		}
		for line := range strings.Lines(said.String()) {
			if _, err := io.WriteString(out, narrow(line)); err != nil {
				return err
			}
		}
		return nil
	})
}

// narrow breaks a line of help. The further lines are indented to the description of the flag or verb.
func narrow(line string) string {
	if utf8.RuneCountInString(line) <= HelpWidth+1 {
		return line
	}
	text := strings.TrimLeft(line, " ")
	lead := line[:len(line)-len(text)]
	if i := strings.Index(text, "   "); i > 0 {
		words := strings.TrimLeft(text[i:], " ")
		lead, text = line[:len(line)-len(words)], words
	}
	return Wrap(text, lead, HelpWidth) + "\n"
}

// Shorten cuts s to at most n characters; what is cut shows as an ellipsis.
func Shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
