package config

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Types of an [Audit]; [File] is another.
const (
	Syslog  = "syslog"
	Webhook = "webhook"
)

// Words of an [Audit].
const (
	CloudEvents = "cloudevents"
	OCSF        = "ocsf"
	CEF         = "cef"

	Oldest = "oldest"
	Newest = "newest"
)

var (
	auditTypes   = []string{File, Syslog, Webhook}
	auditFormats = []string{CloudEvents, OCSF, CEF}
	auditBegins  = []string{Oldest, Newest}
)

// Audit is a place that the daemon delivers audit records to.
type Audit struct {
	ID     string `toml:"id"` // names its cursor, and its metrics
	Type   string `toml:"type"`
	Format string `toml:"format"` // cloudevents
	Begin  string `toml:"begin"`  // where a new delivery begins: oldest

	Path        string   `toml:"path"`         // file
	RotateBytes Bytes    `toml:"rotate_bytes"` // file; 100 MiB
	RotateEvery Duration `toml:"rotate_every"` // file; absent = do not rotate by age
	Keep        int      `toml:"keep"`         // file: rotated files that are kept; 10

	Address string `toml:"address"` // syslog

	URL         string `toml:"url"` // webhook
	SecretFile  string `toml:"secret_file"`
	HeadersFile string `toml:"headers_file"`

	CAFile string `toml:"ca_file"` // syslog over tls, webhook
}

// auditOnly lists, per key of an [[audit]], the types that it belongs to.
var auditOnly = map[string][]string{
	"path": {File}, "rotate_bytes": {File}, "rotate_every": {File}, "keep": {File},
	"address": {Syslog}, "url": {Webhook}, "secret_file": {Webhook}, "headers_file": {Webhook}, "ca_file": {Syslog, Webhook},
}

// receiverID matches an id that can be a file name and a label.
var receiverID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c *Config) checkAudits(r *report) {
	ids, paths := map[string]bool{}, map[string]bool{}
	for i := range c.Audits {
		a, at := &c.Audits[i], fmt.Sprintf("audit.%d", i)
		r.receiver(at, a.ID, ids, "its cursor")
		if p := filepath.Clean(a.Path); a.Path != "" && paths[p] {
			r.add(at+".path", "another one writes this file")
		} else {
			paths[p] = true
		}
		a.check(r, at)
	}
}

func (a *Audit) check(r *report, at string) {
	r.bytes(at+".rotate_bytes", a.RotateBytes)
	r.duration(at+".rotate_every", a.RotateEvery)
	r.count(at+".keep", a.Keep)
	for key, v := range map[string]struct {
		value string
		words []string
	}{"format": {a.Format, auditFormats}, "begin": {a.Begin, auditBegins}} {
		if v.value != "" && !slices.Contains(v.words, v.value) {
			r.add(at+"."+key, "%q: want one of %s%s", v.value, strings.Join(v.words, ", "), meant(v.value, v.words...))
		}
	}
	if !checkKind(r, at, a.Type, auditTypes, auditOnly) {
		return
	}
	switch a.Type {
	case File:
		if a.Path == "" {
			r.add(at+".path", "type file needs it")
		}
	case Syslog:
		if network, _ := a.Syslog(); network == "" {
			r.add(at+".address", "%.100q: want unix:/PATH, udp://HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT", a.Address)
		} else if a.CAFile != "" && network != "tls" {
			r.add(at+".ca_file", "it belongs to an address tls://")
		}
	case Webhook:
		r.webhook(at, a.URL, a.SecretFile)
	}
}

// Syslog returns the network and the address of a syslog server, "" if the file has no valid one.
func (a *Audit) Syslog() (network, address string) {
	if path, ok := strings.CutPrefix(a.Address, "unix:"); ok && filepath.IsAbs(path) {
		return "unix", path
	}
	network, address, _ = strings.Cut(a.Address, "://")
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || !slices.Contains([]string{"udp", "tcp", "tls"}, network) {
		return "", ""
	}
	return network, address
}

func (a *Audit) fill() {
	a.Format, a.Begin = cmp.Or(a.Format, CloudEvents), cmp.Or(a.Begin, Oldest)
	if a.Type == File {
		a.RotateBytes.N, a.Keep = cmp.Or(a.RotateBytes.N, 100<<20), cmp.Or(a.Keep, 10)
	}
}
