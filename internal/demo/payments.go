//go:build unix

package demo

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"io"
	"time"

	payments "github.com/tgad/tgad/internal/payments/server"
)

// Payments is the verb that runs the payments tool server. With --think the server waits
// before it acts on a call, so that a kill can come after the send and before the act.
func Payments(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	flags.SetOutput(stderr)
	think := flags.Duration("think", 0, "time between a call and the act")
	path := flags.String("journal", "", "the tool server's journal")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(relay(w, stdin, *think)) }()
	return payments.Main([]string{"--journal", *path}, r, stdout, stderr)
}

// relay copies lines, and delays those that call a tool.
func relay(w io.Writer, r io.Reader, think time.Duration) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if bytes.Contains(line, []byte(`"tools/call"`)) {
			time.Sleep(think)
		}
		if _, werr := w.Write(line); werr != nil {
			return werr
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}
