package wire

import (
	"github.com/tgad/tgad/schemas/tga"
)

// Messages for the administration of a store.

// VerifyRequest asks for a check of one trace, or of the whole store.
type VerifyRequest struct {
	TraceID tga.ID `json:"trace_id,omitempty"`
}

// Verified is the result of a check. OK is false if Faults is not empty.
type Verified struct {
	OK      bool      `json:"ok"`
	Traces  int       `json:"traces"`
	Entries int       `json:"entries"`
	Notes   int       `json:"notes"`
	Unread  int       `json:"unread,omitempty"` // traces, and values beside them, whose content was not verified: the keys that seal it are not available
	Frozen  string    `json:"frozen,omitempty"` // why the store takes no writes
	Faults  []Problem `json:"faults"`
}

// Working lists long work that is under way: GET /v1/working.
type Working struct {
	Work []Work `json:"work"`
}

// Work is a running verification or backup, and its progress.
type Work struct {
	What    string     `json:"what"` // verify or backup
	Since   tga.Millis `json:"since"`
	Traces  int64      `json:"traces"` // checked so far
	Entries int64      `json:"entries"`
}

// BackupRequest copies the store while it runs: POST /v1/backup.
type BackupRequest struct {
	Dir string `json:"dir"` // absolute, of the daemon's file system; does not exist, or holds a backup of the store
}

// SealRequest moves finished traces into a segment: POST /v1/seal.
type SealRequest struct {
	Before tga.Millis `json:"before,omitempty"` // of the terminal entry; absent = now
}

// Sealed says what a seal did.
type Sealed struct {
	Segments int   `json:"segments"`
	Traces   int   `json:"traces"`
	Bytes    int64 `json:"bytes"` // of the segments
}

// EraseRequest destroys the content of finished traces: POST /v1/erase. It names either what to
// erase or a subject.
type EraseRequest struct {
	Traces    []tga.ID     `json:"traces,omitempty"`
	Turns     []tga.ID     `json:"turns,omitempty"`     // ended turns of agents, whose journals are erased
	Kept      []string     `json:"kept,omitempty"`      // tool servers: values that executors keep about them
	Agents    []AgentState `json:"agents,omitempty"`    // state that agents keep for themselves
	States    []tga.ID     `json:"states,omitempty"`    // working states with their forks
	Subject   string       `json:"subject,omitempty"`   // meta.subject of their requests
	Namespace string       `json:"namespace,omitempty"` // of the subject, and of what is kept; absent = default
	Reason    string       `json:"reason"`              // stays in the log
}

// AgentState names the state of a session of an agent. Without a session it names the state that
// the agent keeps across its sessions.
type AgentState struct {
	Agent   string `json:"agent"`
	Session string `json:"session,omitempty"`
}

// Erased says what an erasure did.
type Erased struct {
	Traces   int `json:"traces"`   // erased now
	Already  int `json:"already"`  // erased before
	Keys     int `json:"keys"`     // destroyed
	Shared   int `json:"shared"`   // traces whose key belongs to a subject and was kept: copies of the store still have their content
	Unsealed int `json:"unsealed"` // traces that had no key: copies of the store still have their content

	Turns  int      `json:"turns,omitempty"`  // erased now
	Kept   int      `json:"kept,omitempty"`   // tool servers, likewise
	States int      `json:"states,omitempty"` // of agents, and working states, likewise
	Left   int      `json:"left,omitempty"`   // traces that cannot be read: they are unchanged
	Unread []Unread `json:"unread,omitempty"` // the first 100 of them
}

// Unread is a trace that cannot be read: an erasure left it unchanged, or it waits for people.
type Unread struct {
	TraceID tga.ID   `json:"trace_id"`
	Code    tga.Code `json:"code"`
	Detail  string   `json:"detail"`
}

// UnfreezeRequest opens a frozen store: POST /v1/unfreeze.
type UnfreezeRequest struct {
	AcceptLoss bool `json:"accept_loss"`
}

// Done answers an administrative request that has nothing else to say.
type Done struct {
	OK bool `json:"ok"`
}

// Health answers GET /healthz and GET /readyz.
type Health struct {
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// NotifyRequest asks for the receivers of notices about what waits for people: POST /v1/notify.
type NotifyRequest struct {
	Test bool `json:"test,omitempty"` // send each receiver a test notice
}

// Notified lists the receivers, in the order of the configuration.
type Notified struct {
	Receivers []NotifyReceiver `json:"receivers"`
}

// NotifyReceiver is one receiver of notices.
type NotifyReceiver struct {
	ID       string     `json:"id"`
	Type     string     `json:"type"`
	Taken    uint64     `json:"taken"`             // notices that it accepted since the daemon began
	Failures uint64     `json:"failures"`          // deliveries that failed
	Last     tga.Millis `json:"last,omitempty"`    // when it accepted the newest
	LateMS   int64      `json:"late_ms"`           // for how long a notice has waited for it
	Trouble  string     `json:"trouble,omitempty"` // why that notice was not delivered
	Failed   string     `json:"failed,omitempty"`  // why the test notice was not delivered
}

// Reloaded says which keys of the daemon's configuration have other values now: POST /v1/reload.
type Reloaded struct {
	Changed []string `json:"changed"` // as docs/CONFIG.md names them
}

// RetentionRequest applies the retention rules of the daemon's configuration: POST /v1/retention.
type RetentionRequest struct {
	DryRun bool `json:"dry_run,omitempty"` // only say what they would do
}

// Retained says what the retention rules did, or would do.
type Retained struct {
	Looked     int            `json:"looked"`     // traces that were examined
	Unreadable int            `json:"unreadable"` // examined traces that cannot be read; they are unchanged
	Sealed     int            `json:"sealed"`     // traces that were moved into sealed segments
	Rules      []RetainedRule `json:"rules"`
	More       bool           `json:"more"` // the run reached its limit of erasures; the next run continues
}

// RetainedRule is the result of one rule, in the order of the file.
type RetainedRule struct {
	Rule     int    `json:"rule"`               // its number in the file, from 1
	Due      int    `json:"due"`                // traces that are old enough
	Erased   int    `json:"erased"`             // due traces that were erased; the others were in use
	Archived string `json:"archived,omitempty"` // file on the daemon's machine that has them
}
