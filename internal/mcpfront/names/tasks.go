package names

import (
	"crypto/subtle"
	"strings"
)

// Tasks makes the ids under which the clients of one identity see tasks of tool servers. Tool servers choose the ids of
// tasks themselves, so two may choose the same id, and anybody who knows an id could ask about the task. So a client
// sees another id: the ids of tool server and task, with a seal that only this gateway can make, for this identity. It
// leads to one task, even after a restart, and does not work for another identity.
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

// Behind returns the task that a client's id stands for. ok says that the id was made for this identity.
func (t Tasks) Behind(seen string) (server, task string, ok bool) {
	if len(seen) < len(taskPrefix)+sealDigits+1 {
		return "", "", false
	}
	server, task, _ = strings.Cut(seen[len(taskPrefix)+sealDigits+1:], ":") // an id of a server has no colon
	return server, task, subtle.ConstantTimeCompare([]byte(t.Seen(server, task)), []byte(seen)) == 1
}
