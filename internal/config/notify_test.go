package config_test

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/config"
)

// TestMistakesInANotifyAreSaid: each mistake is reported at its line, also at each limit and one past it. No
// error repeats an address or a secret.
func TestMistakesInANotifyAreSaid(t *testing.T) {
	const hook = "[[notify]]\nid = \"h\"\ntype = \"webhook\"\nurl = \"https://h/w?t=s3cret\"\nsecret_file = \"/s\"\n"
	const command = "[[notify]]\nid = \"c\"\ntype = \"command\"\ncommand = [\"/c\"]\n"
	for what, c := range map[string][2]string{
		"good":                  {hook + command + "after = \"1ms\"\nnamed = 100\non = [\"frozen\"]\n", ""},
		"the least":             {command + "named = 1\n", ""},
		"two of one id":         {hook + strings.Replace(command, "\"c\"", "\"h\"", 1), "another one too"},
		"an id that is a path":  {strings.Replace(hook, "\"h\"", "\"../h\"", 1), "letters, digits"},
		"no type":               {"[[notify]]\nid = \"x\"\n", "want one of webhook, command"},
		"a type of others":      {"[[notify]]\nid = \"x\"\ntype = \"comand\"\n", "did you mean command?"},
		"a key of another type": {command + "url = \"https://h\"\n", "does not belong to type command"},
		"no command":            {"[[notify]]\nid = \"x\"\ntype = \"command\"\n", "needs the program"},
		"an empty command":      {strings.Replace(command, "/c", "", 1), "needs the program"},
		"plain http":            {strings.Replace(hook, "https", "http", 1), "want https://"},
		"no secret":             {strings.Replace(hook, "secret_file = \"/s\"\n", "", 1), "is not signed"},
		"a word that is none":   {command + "on = [\"doubts\"]\n", "did you mean doubt?"},
		"no word":               {command + "on = []\n", "leave the key out"},
		"no time":               {command + "after = \"0s\"\n", "more than no time"},
		"time that is none":     {command + "pause = \"soon\"\n", "no duration"},
		"one too many":          {command + "named = 101\n", "want 1 to 100"},
		"one too few":           {command + "named = -1\n", "want 1 to 100"},
		"a link of no view":     {command + "ui = \"127.0.0.1:8321\"\n", "want the address"},
		"a link with a query":   {command + "ui = \"http://h/?a=b\"\n", "want the address"},
		"a store in a database": {"[store]\nurl = \"postgres://h/d\"\n" + command + "[[audit]]\nid = \"a\"\ntype = \"file\"\npath = \"/a\"\n", ""},
	} {
		_, err := config.Parse("c.toml", []byte(c[0]), nil)
		switch {
		case c[1] == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case c[1] != "" && (err == nil || !strings.Contains(err.Error(), c[1]) || strings.Contains(strings.Split(err.Error(), "\n")[0], "s3cret")):
			t.Errorf("%s: want %q, got %v", what, c[1], err)
		}
	}
}

// TestNotifyIsToldOfEverythingUnlessItSays: a filter that the file leaves out excludes nothing.
func TestNotifyIsToldOfEverythingUnlessItSays(t *testing.T) {
	c, err := config.Parse("c.toml", []byte("[[notify]]\nid = \"c\"\ntype = \"command\"\ncommand = [\"/c\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Notify[0]; strings.Join(n.On, " ") != "doubt approval quarantined frozen" || n.Every.D != 0 || n.Resolved {
		t.Errorf("%+v", n)
	}
}
