package model

import (
	"bufio"
	"bytes"
	"io"
)

// events reads a stream of server-sent events (WHATWG HTML §9.2).
type events struct {
	r     *bufio.Reader
	begun bool
}

func newEvents(r io.Reader) *events { return &events{r: bufio.NewReader(r)} }

// next returns the data of the next event that has data. An event that does not end with an empty
// line is incomplete and is ignored.
func (e *events) next() ([]byte, error) {
	var data []byte
	any := false
	for {
		line, err := e.r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		if !e.begun {
			line, e.begun = bytes.TrimPrefix(line, []byte("\ufeff")), true // a byte order mark is no part of the stream
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if len(line) == 0 {
			if any {
				return data, nil
			}
			continue
		}
		// A line that starts with a colon is a comment. The event field is ignored, because the
		// data has the kind of event too.
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if any {
			data = append(data, '\n')
		}
		data, any = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
	}
}
