package serving_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strings"
	"time"
)

// outcome is what a trial has seen, as it is kept in bench/results.
type outcome struct {
	Commit   string         `json:"commit"`
	Machine  string         `json:"machine"`
	Server   string         `json:"server"`
	Seed     uint64         `json:"seed"`
	Seconds  int            `json:"seconds"`
	Replicas int            `json:"replicas"`
	Faults   int64          `json:"faults"`
	ByKind   map[string]int `json:"faults_by_kind"`
	Told     map[string]int `json:"told"` // to callers, executors and persons

	Keys    int   `json:"keys"`
	Raced   int64 `json:"keys_asked_of_two_replicas_at_once"`
	Sends   int   `json:"sends"`
	Again   int   `json:"sent_again_under_a_licence"` // each other one is wrong
	Denials int   `json:"called_not_sent_by_a_person"`

	Wrong      int  `json:"wrong_sends_and_lost_answers"`
	Late       int  `json:"sends_of_a_process_that_had_just_woken"`
	Disordered int  `json:"keys_without_an_order"`
	Unanswered int  `json:"keys_without_an_answer"`
	Verified   bool `json:"verified"`
	Traces     int  `json:"traces"`
	Entries    int  `json:"entries"`
}

// report says what was seen, and keeps it where TGAD_TRIAL_OUT names a file.
func (x *trial) report(took time.Duration, o outcome) {
	o.Commit, o.Seed, o.Seconds = x.commit, x.seed, int(took.Seconds())
	o.Machine = fmt.Sprintf("%d cores, %s/%s", goruntime.NumCPU(), goruntime.GOOS, goruntime.GOARCH)
	p, _ := x.servers.now()
	if version, err := p.Query("SHOW server_version"); err == nil {
		o.Server = "PostgreSQL " + version
	}
	o.Replicas, o.Faults, o.Raced, o.ByKind, o.Told = len(x.servers.replicas), x.struck.Load(), x.raced.Load(), x.counts, x.history.count
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Logf("%s", text)
	if name := os.Getenv("TGAD_TRIAL_OUT"); name != "" {
		if err := os.WriteFile(name, append(text, '\n'), 0o644); err != nil {
			x.t.Error(err)
		}
	}
}

// head is the commit that is checked out, "" where there is none.
func head() string {
	out, err := exec.Command("git", "rev-parse", "--short=7", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
