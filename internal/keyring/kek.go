package keyring

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
)

// KEK says where a ring's key-encryption key comes from: a file, or a program that wraps the key. The program is started
// as a command, or listens at a socket.
type KEK struct {
	// File has 32 bytes, or 64 hex digits. Only its owner and a group may be able to read it.
	File string
	// Command is a program and its arguments. It is called with `wrap` or `unwrap` as a last
	// argument, reads the bytes to wrap or unwrap from its standard input and writes the result to
	// its standard output. The ring stores its KEK in the form that the program wrapped.
	Command []string
	// Socket is a unix socket at which such a program listens. It gets HTTP requests, POST /wrap and POST /unwrap with the
	// bytes as the body, and answers with status 200 and the result.
	Socket string
	// Timeout bounds a call of the program. Zero is 10 s.
	Timeout time.Duration
}

const kekLen = 32

// new returns a KEK for a new ring, and its wrapped form for the ring, nil for a KEK from a file.
func (k KEK) new(random io.Reader) (kek, kept []byte, err error) {
	if k.from() == fromFile {
		kek, err = k.read()
		return kek, nil, err
	}
	kek = make([]byte, kekLen)
	if _, err := io.ReadFull(random, kek); err != nil {
		return nil, nil, tga.Errorf(tga.StoreUnavailable, "key ring: random bytes: %w", err)
	}
	if kept, err = k.call("wrap", kek); err != nil {
		return nil, nil, err
	}
	if len(kept) == 0 || len(kept) > maxKEK {
		return nil, nil, tga.Errorf(tga.StoreUnavailable, "key ring: %s wrap said %d bytes: want 1 to %d", k.program(), len(kept), maxKEK)
	}
	return kek, kept, nil
}

// old returns the KEK of an existing ring.
func (k KEK) old(kept []byte) ([]byte, error) {
	if k.from() == fromFile {
		return k.read()
	}
	kek, err := k.call("unwrap", kept)
	if err == nil && len(kek) != kekLen {
		err = tga.Errorf(tga.StoreUnavailable, "key ring: %s unwrap said %d bytes: want %d", k.program(), len(kek), kekLen)
	}
	return kek, err
}

// from returns the kind of source that the ring stores. It is the same for a command and for a socket.
func (k KEK) from() byte {
	if k.File == "" {
		return fromProgram
	}
	return fromFile
}

// program returns the name of the program for people.
func (k KEK) program() string {
	if k.Socket != "" {
		return k.Socket
	}
	return k.Command[0]
}

func (k KEK) check() error {
	n := 0
	for _, set := range []bool{k.File != "", len(k.Command) > 0, k.Socket != ""} {
		if set {
			n++
		}
	}
	if n != 1 {
		return tga.Errorf(tga.ValidationError, "key ring: name a file with the key-encryption key, a command, or a socket, and one of them alone")
	}
	return nil
}

// read reads the KEK from its file.
func (k KEK) read() ([]byte, error) {
	raw, err := secretfile.Read(k.File)
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "key ring: key-encryption key: %w", err)
	}
	if len(raw) == kekLen {
		return raw, nil
	}
	kek, err := hex.DecodeString(string(bytes.TrimSpace(raw)))
	if err != nil || len(kek) != kekLen {
		// The error of hex names a digit of the key.
		return nil, tga.Errorf(tga.StoreUnavailable, "key ring: %s is no key-encryption key: want %d bytes, or %d hex digits", k.File, kekLen, 2*kekLen)
	}
	return kek, nil
}

// call asks the program.
func (k KEK) call(verb string, in []byte) (out []byte, err error) {
	timeout := k.Timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if k.Socket != "" {
		out, err = k.ask(ctx, verb, in)
	} else {
		out, err = k.run(ctx, verb, in)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer within %v", timeout)
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "key ring: %s %s: %w", k.program(), verb, err)
	}
	return out, nil
}

// run runs the command. An error has the first line of its standard error, cut, and nothing of its output.
func (k KEK) run(ctx context.Context, verb string, in []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, k.Command[0], append(k.Command[1:len(k.Command):len(k.Command)], verb)...)
	cmd.WaitDelay = time.Second
	out, said := clip.Head{Most: maxKEK + 1}, clip.Head{Most: 300}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &said
	err := cmd.Run()
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		if line != "" {
			err = errors.Join(err, errors.New(line))
		}
	}
	return out.Bytes(), err
}

// ask sends a request to the socket. If the status is not 200, the error has only the status.
func (k KEK) ask(ctx context.Context, verb string, in []byte) ([]byte, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", k.Socket)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://kek/"+verb, bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := (&http.Transport{DialContext: dial, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered HTTP %d", resp.StatusCode)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxKEK+1))
}
