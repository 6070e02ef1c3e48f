package config

// Keyring is the part about the keys with which a store encrypts (seals) the content of its entries. Without a
// path nothing is sealed. The processes of a store in a database share the ring.
type Keyring struct {
	Path string `toml:"path"` // of the ring; outside of the store. tgad keyring init makes one
	// The key-encryption key is in a file, or a program wraps and unwraps the keys: a command, or a program at a socket.
	KEKFile    string   `toml:"kek_file"`
	KEKCommand []string `toml:"kek_command"`
	KEKSocket  string   `toml:"kek_socket"`
	KEKTimeout Duration `toml:"kek_timeout"` // for one call of the program; 10s
	By         string   `toml:"by"`          // what has a key of its own: "trace" (default), or "subject"
}

// What has a data key of its own.
const (
	ByTrace   = "trace"
	BySubject = "subject"
)

// asks reports whether a program wraps the keys, in place of a file with the key-encryption key.
func (k *Keyring) asks() bool { return len(k.KEKCommand) > 0 || k.KEKSocket != "" }

func (k *Keyring) check(r *report) {
	r.duration("keyring.kek_timeout", k.KEKTimeout)
	if k.By != "" && k.By != ByTrace && k.By != BySubject {
		r.add("keyring.by", "%.40q: want %q or %q", k.By, ByTrace, BySubject)
	}
	if k.Path == "" {
		for key, set := range map[string]bool{"kek_file": k.KEKFile != "", "kek_command": len(k.KEKCommand) > 0, "kek_socket": k.KEKSocket != "", "kek_timeout": k.KEKTimeout.D != 0, "by": k.By != ""} {
			if set {
				r.add("keyring."+key, "it needs keyring.path")
			}
		}
		return
	}
	switch {
	case k.KEKFile == "" && !k.asks():
		r.add("keyring.kek_file", "it is required, or kek_command, or kek_socket: the ring's keys are wrapped under a key-encryption key")
	case k.KEKFile != "" && len(k.KEKCommand) > 0:
		r.add("keyring.kek_command", "it cannot stand beside kek_file: one of them has the key-encryption key")
	case k.KEKSocket != "" && (k.KEKFile != "" || len(k.KEKCommand) > 0):
		r.add("keyring.kek_socket", "it cannot stand beside kek_file or kek_command: one of them has the key-encryption key")
	case !k.asks() && k.KEKTimeout.D != 0:
		r.add("keyring.kek_timeout", "it is of kek_command and kek_socket")
	}
}
