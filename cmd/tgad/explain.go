package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) explain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Say what an error code means and what to do",
		Long:  "explain says what an error code means and what to do. Without a code it lists them all.",
		Args:  cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var all []string
			for _, c := range tga.Codes() {
				all = append(all, string(c.Code))
			}
			return all, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listCodes()
			}
			code := tga.Code(strings.ToUpper(args[0]))
			info, ok := code.Info()
			if !ok {
				return cli.Usagef("%q is not one of the codes; tgad explain lists them", args[0])
			}
			if a.JSON {
				return a.Line(explained(info))
			}
			a.Printf("%s  HTTP %d, %s\n\n%s\n%s\n", info.Code, info.HTTPStatus, retryable(info),
				cli.Wrap(info.Meaning, "", 78), cli.Wrap(info.Remedy, "→ ", 78))
			return nil
		},
	}
}

func (a *app) listCodes() error {
	var rows [][]string
	for _, info := range tga.Codes() {
		if a.JSON {
			if err := a.Line(explained(info)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{string(info.Code), info.Meaning})
	}
	if a.JSON {
		return nil
	}
	return a.Table([]string{"CODE", "MEANING"}, rows)
}

func retryable(info tga.CodeInfo) string {
	if info.Retryable {
		return "the same request may succeed later"
	}
	return "the same request fails again"
}

type explainedCode struct {
	Code       tga.Code `json:"code"`
	HTTPStatus int      `json:"http_status"`
	Retryable  bool     `json:"retryable"`
	Meaning    string   `json:"meaning"`
	Remedy     string   `json:"remedy"`
}

func explained(i tga.CodeInfo) explainedCode {
	return explainedCode{i.Code, i.HTTPStatus, i.Retryable, i.Meaning, i.Remedy}
}
