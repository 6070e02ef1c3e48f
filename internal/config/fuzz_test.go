package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/config"
)

// FuzzSettings: the shown form of a configuration is a configuration, and means the same.
func FuzzSettings(f *testing.F) {
	for _, name := range []string{"testdata/whole/directory.toml", "testdata/whole/database.toml", "testdata/whole/sealed.toml"} {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	for _, text := range []string{"", "[limits]\nlease_ttl = \"1h1ns\"\npage = 0", "[limits]\nmax_lease_ttl = \"10s\"",
		"[[server]]\nid = \"e\"\ntype = \"external\"\n[[tool]]\nserver = \"e\"\nname = \"t\"\nprobe = { max = \"1ms\" }\nretry = { first = \"2h\" }", "[[rule]]\nrationale = \"\\\"'''\\u0001 quotes\"\ndecision = \"DENY\"", "[[server]]\nid = \"e\"\ntype = \"http\"\nurl = \"http://h\"\npaths = { \"a.b\" = \"\" }"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := config.Parse("c.toml", raw, nil)
		if err != nil {
			return
		}
		c.Unwise()
		shown := written(c.Settings())
		if strings.Contains(shown, "***") {
			return
		}
		again, err := config.Parse("c.toml", []byte(shown), nil)
		if err != nil {
			t.Fatalf("%s\nis shown as\n%s\n%v", raw, shown, err)
		}
		if twice := written(again.Settings()); twice != shown {
			t.Fatalf("%s\nis shown as\n%s\nand that as\n%s", raw, shown, twice)
		}
	})
}
