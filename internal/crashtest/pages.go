package crashtest

import "github.com/cockroachdb/pebble/v2/vfs"

// pages models what the memory file system does not: on Linux a failed sync leaves the pages
// marked clean. They can be read, but no later sync writes them; only a new write does. A log
// is written one group at a time and synced after each, so a sync is about its newest write.
type pages struct {
	newest map[string]span // of each log
	clean  map[string]span // what a failed sync left, until it is written again
}

// span is a part of a file, with its content from before it was written. A group is written in
// whole pages, so that content begins with the end of the group before.
type span struct {
	from, to int64
	was      []byte
}

// wrote notes a write to a log.
func (p *pages) wrote(path string, s span) {
	if p.newest == nil {
		p.newest, p.clean = map[string]span{}, map[string]span{}
	}
	p.newest[path] = s
	if c, ok := p.clean[path]; ok && s.from <= c.from && c.to <= s.to {
		delete(p.clean, path)
	}
}

// failed notes that a sync of a log failed and wrote nothing.
func (p *pages) failed(path string) {
	if s, ok := p.newest[path]; ok {
		p.clean[path] = s
	}
}

// lose removes from a disk after a power cut what no sync has written.
func (p *pages) lose(disk vfs.FS) {
	for path, s := range p.clean {
		b, err := readFile(disk, path)
		if err != nil || int64(len(b)) <= s.from {
			continue // the file is not on the disk, or not so far
		}
		copy(b[s.from:min(s.to, int64(len(b)))], s.was)
		if err := writeFile(disk, path, b); err != nil {
			panic("crashtest: write to a disk in memory: " + err.Error())
		}
	}
}
