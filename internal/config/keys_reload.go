package config

import (
	"reflect"
	"strings"
)

// Words for what becomes of a key when the daemon reads its file again.
const (
	ReloadApplies = "applies"  // new calls take the new value
	ReloadRestart = "restart"  // a file that changes it is refused
	ReloadUnread  = "not read" // the daemon has no use for it
)

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

// reloadOf is what a reload makes of a key, "" where no row says it.
func reloadOf(path string) string {
	for {
		if word, ok := reloadRows[path]; ok {
			return word
		}
		dot := strings.LastIndexByte(path, '.')
		if dot < 0 {
			return ""
		}
		path = path[:dot]
	}
}
