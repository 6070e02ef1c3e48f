package config

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Store says where the store is, which one must be there and how much it may use.
type Store struct {
	// ID pins the store: a store with another id, a new one, and no store are refused.
	ID string `toml:"id"`

	// URL names a store in a database; "" is the directory that --data names.
	URL string `toml:"url"`
	// PasswordFile has the password for that database; without it, PostgreSQL's environment variables count.
	PasswordFile string `toml:"password_file"`
	// RequireSync refuses a database that acknowledges commits before a standby has them.
	RequireSync bool `toml:"require_sync"`
	// Shard is the number of the store among the stores of one database.
	Shard int32 `toml:"shard"`
	// Namespace selects the store of this namespace in a fleet of several shards; "" is all of them.
	Namespace string `toml:"namespace"`
	// Lease is how long a daemon of a store in a database keeps its calls after it stopped answering.
	Lease Duration `toml:"lease"`
	// Patience is how long a daemon tries to reach a database server that answers.
	Patience Duration `toml:"patience"`

	// WitnessFile is a file on another disk. With it a store that was copied or rolled back is
	// detected.
	WitnessFile string `toml:"witness_file"`

	LowWaterBytes Bytes `toml:"low_water_bytes"`
	MemTableBytes Bytes `toml:"memtable_bytes"`
	CacheBytes    Bytes `toml:"cache_bytes"`
	// RewriteShare is the percentage of the processors that the compression of the log may take; -1
	// turns the compression off.
	RewriteShare int `toml:"rewrite_share"`
	// ListIndex keeps an index of traces, for lists with the newest first.
	ListIndex bool `toml:"list_index"`
}

func (s *Store) check(r *report) {
	if s.ID != "" {
		if _, err := tga.ParseID(s.ID); err != nil {
			r.add("store.id", "%q: want the id that tgad init prints", s.ID)
		}
	}
	if s.RewriteShare < -1 || s.RewriteShare > 100 {
		r.add("store.rewrite_share", "%d: want 1 to 100, or -1 for none", s.RewriteShare)
	}
	for key, b := range map[string]Bytes{
		"low_water_bytes": s.LowWaterBytes, "memtable_bytes": s.MemTableBytes, "cache_bytes": s.CacheBytes,
	} {
		r.bytes("store."+key, b)
	}
	r.duration("store.lease", s.Lease)
	r.duration("store.patience", s.Patience)
	s.checkURL(r)
}

// directoryKeys belong only to a store in a directory, databaseKeys only to one in a database.
var (
	directoryKeys = []string{"witness_file", "low_water_bytes", "memtable_bytes", "cache_bytes", "rewrite_share"}
	databaseKeys  = []string{"password_file", "require_sync", "shard", "namespace", "lease", "patience"}
)

// checkURL checks the URL, and refuses keys beside it that belong only to a store in a directory.
func (s *Store) checkURL(r *report) {
	if s.Shard < 0 {
		r.add("store.shard", "%d: want 0 or more", s.Shard)
	}
	if s.Shard != 0 && s.Namespace != "" {
		r.add("store.namespace", "store.shard names a store already")
	}
	if s.URL == "" {
		return
	}
	if err := CheckStoreURL(s.URL); err != nil {
		r.addSecret("store.url", "%s", err)
	}
	for _, key := range directoryKeys {
		if r.has("store." + key) {
			r.add("store."+key, "it is of a store in a directory, and url names a database")
		}
	}
}

// OfDatabase names a key that the file sets and that belongs only to a store in a database; "" if there
// is none.
func (s *Store) OfDatabase() string {
	for key, set := range map[string]bool{
		"password_file": s.PasswordFile != "", "require_sync": s.RequireSync, "shard": s.Shard != 0, "namespace": s.Namespace != "", "lease": s.Lease.D != 0, "patience": s.Patience.D != 0,
	} {
		if set {
			return key
		}
	}
	return ""
}

var passwordParameter = regexp.MustCompile(`(?i)^(password|passfile|sslpassword)$`)

// CheckStoreURL checks the URL of a store in a database. The error does not repeat the URL, which
// may contain a password.
func CheckStoreURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return errors.New("want postgres://USER@HOST/DATABASE")
	}
	_, secret := u.User.Password()
	for name := range u.Query() {
		secret = secret || passwordParameter.MatchString(name)
	}
	// Other programs may parse the URL differently: refuse everything that looks like a password.
	if secret || u.User == nil && strings.Contains(u.Host+u.Opaque, "@") {
		return errors.New("want a URL without a password: that belongs into [store] password_file, or into PGPASSFILE or PGPASSWORD")
	}
	return nil
}
