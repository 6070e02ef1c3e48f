package config

import (
	"reflect"
	"strings"
)

// The words for what a program does with a key when it reads its file again.
const (
	ReloadApplies = "applies"  // new calls take the new value
	ReloadRestart = "restart"  // a file that changes it is refused
	ReloadUnread  = "not read" // the program has no use for it
)

// Reader is a program that reads its file again.
type Reader string

// The readers. A gateway or a shim with a log of its own also contains a [Daemon], which is a reader by itself.
const (
	Daemon Reader = "tgad serve"
	Behind Reader = "tgad gateway"
	Shim   Reader = "tgad mcp"
)

// shimRows and gatewayRows are the [reloadRows] of the other readers. A key without a row is not read.
var shimRows = map[string]string{
	"server.id":                  ReloadApplies,
	"server.drift":               ReloadApplies,
	"server.trusted":             ReloadRestart,
	"server.call_ids":            ReloadRestart,
	"server.workspace":           ReloadRestart,
	"server.workspace_snapshots": ReloadRestart,
	"server.workspace_exclude":   ReloadRestart,
	"server.workspace_keep":      ReloadRestart,

	"tool.server":       ReloadApplies,
	"tool.name":         ReloadApplies,
	"tool.key.from":     ReloadApplies,
	"tool.key.argument": ReloadApplies,
	"tool.key.meta":     ReloadApplies,
	"tool.log":          ReloadApplies,
}

var gatewayRows = map[string]string{
	"server.type":          ReloadApplies,
	"server.command":       ReloadApplies,
	"server.env":           ReloadApplies,
	"server.env_file":      ReloadApplies,
	"server.dir":           ReloadApplies,
	"server.url":           ReloadApplies,
	"server.headers_file":  ReloadApplies,
	"server.start_timeout": ReloadApplies,
	"server.trusted":       ReloadApplies,
	"server.call_ids":      ReloadApplies,
	"server.prefix":        ReloadApplies,
	"server.rename":        ReloadApplies,
	"server.allow":         ReloadApplies,
	"server.deny":          ReloadApplies,
	"server.resources":     ReloadApplies,
	"server.forward_auth":  ReloadApplies,

	"gateway":         ReloadApplies,
	"gateway.mode":    ReloadRestart,
	"gateway.metrics": ReloadRestart,
	"gateway.tls":     ReloadRestart, // its files are read again by themselves
}

// rowsOf are the tables of a reader. The first one that has a row for a key counts.
func rowsOf(r Reader) []map[string]string {
	switch r {
	case Behind:
		return []map[string]string{gatewayRows, shimRows}
	case Shim:
		return []map[string]string{shimRows}
	}
	return []map[string]string{reloadRows}
}

// reloadRows says for each key what a reload does with it. The longest row counts that is the key or
// a table above it. Keys that are used when the store or the socket is opened need a restart. So do
// limits of what is stored: a call keeps the limits that it began with.
var reloadRows = map[string]string{
	"profile":     ReloadRestart,
	"trust_hints": ReloadApplies,
	"allow_all":   ReloadApplies,

	"store":     ReloadRestart,
	"keyring":   ReloadRestart,
	"evidence":  ReloadRestart,
	"audit":     ReloadRestart,
	"notify":    ReloadApplies,
	"redaction": ReloadRestart,
	"retention": ReloadApplies,
	"backup":    ReloadApplies,
	"socket":    ReloadRestart,

	"limits":                ReloadApplies,
	"limits.request_bytes":  ReloadRestart,
	"limits.body_budget":    ReloadRestart,
	"limits.artifact_bytes": ReloadRestart,
	"limits.answer_bytes":   ReloadRestart,
	"limits.depth":          ReloadRestart,
	"limits.header_timeout": ReloadRestart,
	"limits.idle_timeout":   ReloadRestart,

	"server":           ReloadApplies,
	"server.call_ids":  ReloadUnread,
	"server.drift":     ReloadUnread,
	"server.prefix":    ReloadUnread,
	"server.rename":    ReloadUnread,
	"server.allow":     ReloadUnread,
	"server.deny":      ReloadUnread,
	"server.resources": ReloadUnread,

	"server.forward_auth": ReloadUnread,

	"tool":          ReloadApplies,
	"tool.key.from": ReloadUnread,
	"tool.log":      ReloadUnread,

	"verifier":   ReloadApplies,
	"prober":     ReloadApplies,
	"approval":   ReloadApplies,
	"supervisor": ReloadApplies,
	"rule":       ReloadApplies,
	"role":       ReloadApplies,

	"capability":          ReloadApplies,
	"capability.key_file": ReloadRestart,

	"model":   ReloadUnread,
	"agent":   ReloadUnread,
	"gateway": ReloadUnread,
}

// Read is the server without the keys that the daemon does not use. Two servers that differ only in those
// are the same for the daemon.
func (s Server) Read() Server {
	v := reflect.ValueOf(&s).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if reloadOf("server."+f.Tag.Get("toml")) == ReloadUnread {
			v.FieldByIndex(f.Index).SetZero()
		}
	}
	return s
}

// ReloadOf is what a program does with a key on a reload.
func ReloadOf(r Reader, path string) string {
	for _, rows := range rowsOf(r) {
		if word := wordOf(rows, path); word != "" {
			return word
		}
	}
	return ReloadUnread
}

// reloadOf is what a daemon does with a key on a reload, "" if no row says it.
func reloadOf(path string) string { return wordOf(reloadRows, path) }

// wordOf is the word of the longest row that is the key or a table above it.
func wordOf(rows map[string]string, path string) string {
	for {
		if word, ok := rows[path]; ok {
			return word
		}
		dot := strings.LastIndexByte(path, '.')
		if dot < 0 {
			return ""
		}
		path = path[:dot]
	}
}
