package modelserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Op says what a record is about.
type Op string

// Kinds of records.
const (
	Asked    Op = "asked"    // a valid request arrived, and is about to get a new answer
	Repeated Op = "repeated" // its key was used before: the same answer is given again
	Refused  Op = "refused"  // the request is not valid for the API
	Answered Op = "answered" // all of the answer to request N was handed to the network
)

// Record is a line of the journal: one JSON object and a newline. A last line without one
// was never synced and is not counted.
type Record struct {
	Op     Op     `json:"op"`
	N      int    `json:"n"` // number of the request, from 1
	Key    string `json:"key,omitempty"`
	API    string `json:"api,omitempty"`
	Model  string `json:"model,omitempty"`
	Stream bool   `json:"stream,omitempty"`
	Digest string `json:"digest,omitempty"` // SHA-256 of the request's body, hex
	// Answer is the index in the script.
	Answer int  `json:"answer"`
	Failed bool `json:"failed,omitempty"` // the answer is an error
}

// Counts are the sums of a journal.
type Counts struct {
	Requests int            // of all kinds
	Asked    int            // for which the model had to think
	Failed   int            // of Asked: answered with an error
	Repeated int            // answered from memory
	Refused  int            // not understood
	Answered int            // to the last byte
	ByKey    map[string]int // requests with an Idempotency-Key, Refused left out
}

func (c *Counts) add(r Record) {
	if r.Op == Answered {
		c.Answered++
		return
	}
	c.Requests++
	switch r.Op {
	case Asked:
		c.Asked++
		if r.Failed {
			c.Failed++
		}
	case Repeated:
		c.Repeated++
	case Refused:
		c.Refused++
		return
	}
	if c.ByKey == nil {
		c.ByKey = map[string]int{}
	}
	if r.Key != "" {
		c.ByKey[r.Key]++
	}
}

// readRecords returns the whole lines of a journal and how many bytes they are.
func readRecords(path string) (all []Record, size int64, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	for {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		if !ended {
			return all, size, nil
		}
		var r Record
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			return nil, 0, fmt.Errorf("journal %s, at byte %d: %w", path, size, err)
		}
		all, size, b = append(all, r), size+int64(len(line))+1, rest
	}
}

// journal appends records to a file. It belongs to one process at a time.
type journal struct{ file *os.File }

func openJournal(path string) (*journal, []Record, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, err
	}
	records, size, err := readRecords(path)
	if err == nil {
		err = errors.Join(file.Truncate(size), file.Sync(), syncDir(filepath.Dir(path)))
	}
	if err == nil {
		_, err = file.Seek(size, io.SeekStart)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return &journal{file}, records, nil
}

// append returns once r is on disk.
func (j *journal) append(r Record) error {
	if j == nil {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return err
	}
	return j.file.Sync()
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return j.file.Close()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
