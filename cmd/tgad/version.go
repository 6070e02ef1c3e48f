package main

import (
	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			if a.JSON {
				return a.Line(v)
			}
			a.Printf("%s\n", v)
			return nil
		},
	}
}

type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // of the source, "+" when it was changed; "unknown" outside a repository
	Go       string `json:"go"`
}

func (v version) String() string { return "tgad " + v.Version + " " + v.Revision + " " + v.Go }

func buildVersion() version {
	v := version{Version: "devel", Revision: "unknown", Go: goruntime.Version()}
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
