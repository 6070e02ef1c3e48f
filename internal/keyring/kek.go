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

// KEK says where a ring's key-encryption key comes from: a file, or a program that wraps it, which is started as a
// command or listens at a socket.
type KEK struct {
	// File has 32 bytes, or 64 hex digits. Nobody but its owner and a group can read it.
	File string
	// Command is a program and its arguments. It is called with `wrap` or `unwrap` behind these,
	// gets the bytes to wrap or unwrap on its standard input and says the result on its standard
	// output. The ring keeps its KEK as that program wrapped it.
	Command []string
	// Socket is a unix socket at which such a program listens. It is asked with HTTP: POST /wrap and POST /unwrap with the
	// bytes as the body, and answers 200 with the result.
	Socket string
	// Timeout bounds a call of the program. Zero is 10 s.
	Timeout time.Duration
}

const kekLen = 32

// new returns a KEK for a new ring, and what the ring keeps of it.
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

// old returns the KEK of a ring that is there.
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

// from is what the ring keeps of it: a program is the same one behind a command and behind a socket.
func (k KEK) from() byte {
	if k.File == "" {
		return fromProgram
	}
	return fromFile
}

// program is its name for people.
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

// run starts the command. What it says on its standard error is shown, cut to a line; nothing of its output is.
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

// ask asks at the socket. Of an answer with another status than 200 the status alone is shown.
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
