package config

import (
	"reflect"
	"strings"
)

// Words for what becomes of a key when a program reads its file again.
const (
	ReloadApplies = "applies"  // new calls take the new value
	ReloadRestart = "restart"  // a file that changes it is refused
	ReloadUnread  = "not read" // the program has no use for it
)

// Reader is a program that reads its file again.
type Reader string

// The readers. A gateway or a shim that has its log itself has a [Daemon] in it, which is one of its own.
const (
	Daemon Reader = "tgad serve"
	Behind Reader = "tgad gateway"
	Shim   Reader = "tgad mcp"
)

// shimRows and gatewayRows are as [reloadRows] those of the other readers. What no row has is not read.
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

// rowsOf are the rows of a reader, those of the ones before it first.
func rowsOf(r Reader) []map[string]string {
	switch r {
	case Behind:
		return []map[string]string{gatewayRows, shimRows}
	case Shim:
		return []map[string]string{shimRows}
	}
	return []map[string]string{reloadRows}
}

// reloadRows says of each key what a reload makes of it, by the longest row that is the key or
// a table above it. What holds until the store or the socket is opened anew takes a restart, and
// so do bounds of what is stored: a call keeps those that it was begun under.
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

// Read is the server without the keys that the daemon has no use for: one that differs in those alone
// is the same to it.
func (s Server) Read() Server {
	v := reflect.ValueOf(&s).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if reloadOf("server."+f.Tag.Get("toml")) == ReloadUnread {
			v.FieldByIndex(f.Index).SetZero()
		}
	}
	return s
}

// ReloadOf is what a reload by a program makes of a key.
func ReloadOf(r Reader, path string) string {
	for _, rows := range rowsOf(r) {
		if word := wordOf(rows, path); word != "" {
			return word
		}
	}
	return ReloadUnread
}

// reloadOf is what a reload by a daemon makes of a key, "" where no row says it.
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
