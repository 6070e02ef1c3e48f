package setup

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
)

// idPart matches a character that an id may have.
var idPart = regexp.MustCompile(`^[A-Za-z0-9_./-]$`)

// runners are commands that run another command, and their subcommands. None of them names the tool server.
var runners = map[string]bool{
	"npx": true, "bunx": true, "pnpx": true, "uvx": true, "pipx": true, "node": true, "bun": true, "deno": true,
	"python": true, "python3": true, "uv": true, "docker": true, "podman": true, "env": true, "sh": true, "bash": true,
	"run": true, "exec": true, "dlx": true, "x": true, "tool": true, "pnpm": true, "yarn": true, "npm": true, "go": true,
}

// plain are names that do not identify a program. Then the directory above gives the name.
var plain = map[string]bool{
	"index": true, "main": true, "server": true, "cli": true, "app": true, "dist": true, "build": true,
	"src": true, "bin": true, "lib": true, "out": true, "mcp": true, ".": true, "": true,
}

// ServerID makes an id for a tool server from the command that starts it: the name of the program
// or package, without path, version and file extension.
func ServerID(command []string) string {
	for _, word := range command {
		if strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
			continue
		}
		steps := strings.Split(strings.ReplaceAll(word, `\`, "/"), "/")
		if runners[steps[len(steps)-1]] {
			continue
		}
		last := ""
		for i := len(steps) - 1; i >= 0; i-- {
			name := idWord(steps[i])
			last = cmp.Or(last, name)
			if !plain[name] {
				return name
			}
		}
		if last != "" {
			return last
		}
	}
	return "server"
}

// ServerIDOfURL makes an id for a tool server from its address: host, port and path, so that two
// addresses have two ids. It leaves out user and query, which may be secret.
func ServerIDOfURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	id := strings.Map(func(r rune) rune {
		if r < 0x80 && idPart.MatchString(string(r)) {
			return r
		}
		return '_'
	}, strings.ToLower(u.Host)+u.Path)
	id = strings.Trim(path.Clean(id), "./")
	if len(id) > 128 {
		sum := tga.Sum([]byte(id))
		id = strings.TrimRight(id[:111], "./") + "-" + sum.String()[:16]
	}
	if !tga.CleanName(id) {
		return ""
	}
	return id
}

// idWord makes a valid part of an id from a part of a path.
func idWord(name string) string {
	if at := strings.LastIndexByte(name, '@'); at > 0 {
		name = name[:at]
	}
	name = strings.TrimSuffix(name, path.Ext(name))
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && idPart.MatchString(string(r)) {
			return r
		}
		return '_'
	}, name)
	return strings.Trim(clip.Bytes(name, 128), "._/")
}
