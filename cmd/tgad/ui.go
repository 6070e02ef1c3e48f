package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/logfile"
	"github.com/tgad/tgad/internal/mcpfront/identity"
	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/runtime/client"
)

func webView(a *app) *cobra.Command {
	v := view{app: a}
	c := &cobra.Command{
		Use:   "ui [FILE]",
		Short: "Show the store, or a file of its log, in a browser",
		Long: `ui shows what waits for people, which calls are in doubt and what happened in each call, in
a browser on this machine, and does what you decide there. It may do what you may do on the
command line, and it asks the same daemon.

It prints a link that works once. From another machine, forward the port: with
ssh -L 8321:127.0.0.1:8321 HOST and --listen 127.0.0.1:8321 the link works there too.

With --data and a store that no process has, it shows the store and changes nothing. With
FILE it shows the calls of a sealed segment, an export or an evidence file, which needs
neither a store nor a daemon. It verifies the file first, and says what is wrong with it.

With --proxy-host it serves the visitors of a reverse proxy at --listen unix:PATH. There is no
link then: who a visitor is, a token (JWT) in --token-header says, which must be signed by a
key in --jwks, be of --issuer, for --audience, and have an end. Whoever has none sees what
you see, and can do nothing.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if a.data != "" || a.socketNamed() {
					return cli.Usagef("name a FILE, or a store by --data or --socket, not both")
				}
				return v.file(cmd.Context(), args[0])
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return v.serve(ctx, c, ui.Options{ReadOnly: a.dialer != nil})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&v.listen, "listen", "127.0.0.1:0", "loopback `address` to listen on; port 0 is any that is free; behind a proxy unix:PATH")
	f.StringVar(&v.host, "proxy-host", "", "`NAME` of the view in the browsers of a proxy's visitors")
	f.StringVar(&v.jwks, "jwks", "", "`file` with the public keys that sign the visitors' tokens (RFC 7517)")
	f.StringVar(&v.issuer, "issuer", "", "issuer of the tokens")
	f.StringVar(&v.audience, "audience", "", "audience of the tokens")
	f.StringVar(&v.header, "token-header", "Authorization", "`header` that has the token, with or without Bearer before it")
	f.StringVar(&v.claim, "token-claim", "sub", "`claim` that is the visitor's name")
	return c
}

// view is the verb ui.
type view struct {
	*app
	listen, host, jwks, issuer, audience, header, claim string
}

// open listens, and says who comes through the proxy; nil where there is none.
func (v *view) open() (net.Listener, *ui.Proxy, error) {
	path, file := strings.CutPrefix(v.listen, "unix:")
	switch {
	case !file && v.host == "" && v.jwks == "" && v.issuer == "" && v.audience == "":
		l, err := ui.Listen(v.listen)
		return l, nil, err
	case !file || v.host == "" || v.jwks == "" || v.issuer == "" || v.audience == "":
		return nil, nil, cli.Usagef("behind a proxy give all of --listen unix:PATH, --proxy-host, --jwks, --issuer and --audience")
	}
	tokens, err := identity.OpenTokens(v.jwks, v.issuer, v.audience)
	if err != nil {
		return nil, nil, err
	}
	l, err := ui.ListenBehind(path)
	return l, &ui.Proxy{Host: v.host, Who: func(r *http.Request) string {
		said := r.Header.Values(v.header)
		if len(said) != 1 {
			return ""
		}
		token := said[0]
		if scheme, rest, ok := strings.Cut(token, " "); ok && strings.EqualFold(scheme, "Bearer") {
			token = strings.TrimSpace(rest)
		}
		return tokens.Claim(token, v.claim)
	}}, err
}

// file serves the view of a file.
func (v *view) file(ctx context.Context, path string) (err error) {
	f, err := logfile.Open(ctx, path, func(r *logfile.Reader) (stop func()) {
		return v.Watch(ctx, func(context.Context) string { return r.Progress("ui") })
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return v.serve(ctx, f, ui.Options{About: &ui.About{
		Words:  fmt.Sprintf("%s (%s): %d calls, %d entries, %d notes.", f.Path, f.Kind, f.Found.Traces, f.Found.Entries, f.Found.Notes),
		Proved: f.Proved, NotProved: f.NotProved, Fault: f.Fault,
	}})
}

// serve prints how a browser reaches a view, and serves it until ctx ends.
func (v *view) serve(ctx context.Context, log ui.Log, o ui.Options) error {
	l, proxy, err := v.open()
	if err != nil {
		return err
	}
	o.Version, o.Logger, o.Proxy = cli.BuildVersion().Version, v.Lines(slog.LevelWarn, false), proxy
	s := ui.New(log, o)
	url := fmt.Sprintf("http://%s%s", l.Addr(), s.Login())
	if proxy != nil {
		url = "https://" + v.host + "/"
	}
	if !v.JSON {
		v.Printf("open %s\n", url)
	} else if err := v.Line(map[string]string{"url": url}); err != nil {
		return errors.Join(err, l.Close())
	}
	return s.Serve(ctx, l)
}
