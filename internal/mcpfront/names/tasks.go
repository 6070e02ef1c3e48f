package names

import (
	"crypto/subtle"
	"strings"
)

// Tasks are the names of the tasks that tool servers have made for one identity's calls. Tool servers choose their ids
// themselves, so two may choose the same, and whoever knows one could ask about it. So a client sees another id. It has
// the tool server's id and the task's in it, under a seal that only this gateway can make, for this identity: it leads to
// one task, also after a restart, and is of no use to anybody else.
type Tasks struct {
	Of   string                   // the identity
	Seal func(text string) string // at least sealDigits hex digits
}

const (
	taskPrefix = "gate-"
	sealDigits = 32
)

// Seen is the client's id of a task.
func (t Tasks) Seen(server, task string) string {
	return taskPrefix + t.Seal(t.Of + "\x00" + server + "\x00" + task)[:sealDigits] + "-" + server + ":" + task
}

// Behind is the task that a client's id stands for; ok says that the id was given to a client of this identity.
func (t Tasks) Behind(seen string) (server, task string, ok bool) {
	if len(seen) < len(taskPrefix)+sealDigits+1 {
		return "", "", false
	}
	server, task, _ = strings.Cut(seen[len(taskPrefix)+sealDigits+1:], ":") // an id of a server has no colon
	return server, task, subtle.ConstantTimeCompare([]byte(t.Seen(server, task)), []byte(seen)) == 1
}
