package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"syscall"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// dial makes a client of the daemon. It connects with the first request.
func (a *app) dial() *client.Client {
	return client.New(a.socket, client.Options{Name: "tgad-cli", Dial: a.dialer})
}

// ask runs f with a client of whoever answers for the store (see visit). If no daemon
// listens, the error says so.
func (a *app) ask(ctx context.Context, f func(context.Context, *client.Client) error) (err error) {
	leave, err := a.visit(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	c := a.dial()
	return errors.Join(a.explainSocket(f(ctx, c)), c.Close())
}

func (a *app) explainSocket(err error) error {
	var dialing *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, tga.EffectInDoubt):
		return err // whatever happened since
	case !errors.As(err, &dialing) || dialing.Op != "dial":
		return err // a file that the verb itself could not open, say
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return caused(err, tga.StoreUnavailable, "no daemon listens at %s: start one with tgad serve, or name its socket", a.socket)
	case errors.Is(err, fs.ErrPermission):
		return caused(err, tga.PermissionDenied, "the socket %s is not yours to use", a.socket)
	}
	return err
}

// caused makes an error whose message already says everything about its cause. The cause
// stays in the chain for errors.Is.
func caused(cause error, code tga.Code, format string, args ...any) *tga.Error {
	err := tga.Errorf(code, format, args...)
	err.Err = cause
	return err
}

// message prints a message of the protocol as one line. Its JSON parts keep their bytes.
func (a *app) message(v any) error {
	_, err := a.Out.Write(append(wire.Append(nil, v), '\n'))
	return err
}

// parseIDs reads trace ids from the command line.
func parseIDs(args []string) ([]tga.ID, error) {
	ids := make([]tga.ID, len(args))
	for i, s := range args {
		id, err := cli.ParseID(s)
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	return ids, nil
}
