package cli

import (
	goruntime "runtime"
	"runtime/debug"
)

// Version says which program this is.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // of the source, "+" when it was changed; "unknown" outside a repository
	Go       string `json:"go"`
}

func (v Version) String() string { return "tgad " + v.Version + " " + v.Revision + " " + v.Go }

// BuildVersion is what the build says of itself.
func BuildVersion() Version {
	v := Version{Version: "devel", Revision: "unknown", Go: goruntime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	modified := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+"
		}
	}
	v.Revision += modified
	return v
}
