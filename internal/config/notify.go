package config

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/listen"
)

// Command is a type of [Notify]; [Webhook] is the other.
const Command = "command"

// The kinds of matters that a [Notify] may be about.
const (
	OnDoubt       = "doubt"       // a call may have run, and its effect is not known
	OnApproval    = "approval"    // a call waits for a decision
	OnQuarantined = "quarantined" // the log of a call fails a check
	OnFrozen      = "frozen"      // nothing may be appended to the store
)

var (
	notifyTypes = []string{Webhook, Command}
	notifyOn    = []string{OnDoubt, OnApproval, OnQuarantined, OnFrozen}
)

// mostNamed limits how many matters one notice names.
const mostNamed = 100

// Notify is a receiver of notices about what waits for people.
type Notify struct {
	ID   string   `toml:"id"` // names its book, and its metrics
	Type string   `toml:"type"`
	On   []string `toml:"on"` // absent = all

	Namespace string `toml:"namespace"` // of the calls; absent = any
	Server    string `toml:"server"`
	Tool      string `toml:"tool"`

	After    Duration `toml:"after"`    // how long a matter must wait before it is told; 30s
	Every    Duration `toml:"every"`    // how often a matter is told again; absent = it is told once
	Pause    Duration `toml:"pause"`    // between two notices; 1m
	Named    int      `toml:"named"`    // matters that one notice names; the others are only counted; 10
	Resolved bool     `toml:"resolved"` // tell also when a matter no longer waits
	UI       string   `toml:"ui"`       // address of tgad ui, for links
	Timeout  Duration `toml:"timeout"`  // for the receiver to take a notice; 30s

	Command []string `toml:"command"` // command: the program and its arguments

	URL         string `toml:"url"` // webhook
	SecretFile  string `toml:"secret_file"`
	HeadersFile string `toml:"headers_file"`
	CAFile      string `toml:"ca_file"`
}

// notifyKeys lists, per key of a [[notify]], the types that it belongs to.
var notifyKeys = map[string][]string{
	"command": {Command}, "url": {Webhook}, "secret_file": {Webhook}, "headers_file": {Webhook}, "ca_file": {Webhook},
}

func (c *Config) checkNotify(r *report) {
	ids := map[string]bool{}
	for i := range c.Notify {
		n, at := &c.Notify[i], fmt.Sprintf("notify.%d", i)
		r.receiver(at, n.ID, ids, "what it was told")
		n.check(r, at)
	}
}

// receiver checks the id of a receiver, which is used as a file name and as a label.
func (r *report) receiver(at, id string, ids map[string]bool, own string) {
	if !receiverID.MatchString(id) {
		r.add(at+".id", "%.80q: want 1 to 64 letters, digits, - and _", id)
	}
	if ids[id] {
		r.add(at+".id", "%q is the id of another one too: each has a file of its own for %s", id, own)
	}
	ids[id] = true
}

// webhook checks where signed messages are posted.
func (r *report) webhook(at, address, secret string) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && listen.Loopback(u.Host)) || u.User != nil {
		r.add(at+".url", "want https://host/path, or http:// of this machine, without a password") // not repeated: a query may be a secret
	}
	if secret == "" {
		r.add(at+".secret_file", "type webhook needs it: a message that is not signed proves nothing to its receiver")
	}
}

func (n *Notify) check(r *report, at string) {
	for i, word := range n.On {
		if !slices.Contains(notifyOn, word) {
			r.add(fmt.Sprintf("%s.on.%d", at, i), "%.40q: want some of %s%s", word, strings.Join(notifyOn, ", "), meant(word, notifyOn...))
		}
	}
	if r.has(at+".on") && len(n.On) == 0 {
		r.add(at+".on", "it is told of nothing: leave the key out for everything")
	}
	for key, d := range map[string]Duration{"after": n.After, "every": n.Every, "pause": n.Pause, "timeout": n.Timeout} {
		if r.duration(at+"."+key, d); d.bad == nil && d.D == 0 && r.has(at+"."+key) {
			r.add(at+"."+key, "want more than no time; leave the key out for its default")
		}
	}
	if n.Named < 0 || n.Named > mostNamed {
		r.add(at+".named", "%d: want 1 to %d", n.Named, mostNamed)
	}
	if n.UI != "" {
		if u, err := url.Parse(n.UI); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			r.add(at+".ui", "%.100q: want the address of tgad ui, as http://127.0.0.1:8321", n.UI)
		}
	}
	if !checkKind(r, at, n.Type, notifyTypes, notifyKeys) {
		return
	}
	switch n.Type {
	case Command:
		if len(n.Command) == 0 || n.Command[0] == "" {
			r.add(at+".command", "type command needs the program, and its arguments if it has any")
		}
	case Webhook:
		r.webhook(at, n.URL, n.SecretFile)
	}
}

func (n *Notify) fill() {
	n.After.D, n.Pause.D, n.Timeout.D = cmp.Or(n.After.D, 30*time.Second), cmp.Or(n.Pause.D, time.Minute), cmp.Or(n.Timeout.D, 30*time.Second)
	n.Named = cmp.Or(n.Named, 10)
	if len(n.On) == 0 {
		n.On = notifyOn
	}
}
