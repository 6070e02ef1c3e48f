package deliver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/audit"
)

// Networks of a [Syslog].
const (
	Unix = "unix" // datagrams to a socket of this machine, as /dev/log is
	UDP  = "udp"
	TCP  = "tcp" // messages with their length before them (RFC 6587, 3.4.1)
	TLS  = "tls" // likewise (RFC 5425)
)

// Syslog is a sink that sends each record as a message of RFC 5424, with the facility 13 (log audit).
//
// Syslog has no acknowledgement. Over tcp and tls, each batch has a connection of its own: Put closes its
// side and waits until the server closes the other, which a server does after it has read everything. A
// datagram counts as taken once the system has accepted it.
type Syslog struct {
	Network, Address string
	TLS              *tls.Config // of the network tls
	Host             string      // of the messages; "" is this machine's name
}

// longestDatagram is how much of a message goes into one datagram; the rest of a longer one is cut off.
const longestDatagram = 60_000

// Put implements [Sink].
func (s *Syslog) Put(ctx context.Context, b *Batch) error {
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	// The end of ctx ends reads and writes: a daemon that stops, or is no longer on duty, does not wait for the server.
	over := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // an error means that it is closed already
	defer over()
	err = s.send(conn, b)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return errors.Join(err, conn.Close())
}

// Close implements [Sink].
func (s *Syslog) Close() error { return nil }

func (s *Syslog) dial(ctx context.Context) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	switch s.Network {
	case Unix:
		return dialer.DialContext(ctx, "unixgram", s.Address)
	case TLS:
		return (&tls.Dialer{NetDialer: dialer, Config: s.TLS}).DialContext(ctx, "tcp", s.Address)
	}
	return dialer.DialContext(ctx, s.Network, s.Address)
}

func (s *Syslog) send(conn net.Conn, b *Batch) error {
	host := s.Host
	if name, err := os.Hostname(); host == "" && err == nil {
		host = name
	}
	datagrams := s.Network == Unix || s.Network == UDP
	var stream []byte
	for i := range b.Records {
		m := message(host, &b.Records[i], b.Lines[i])
		if !datagrams {
			stream = append(append(strconv.AppendInt(stream, int64(len(m)), 10), ' '), m...)
			continue
		}
		if _, err := conn.Write(m[:min(len(m), longestDatagram)]); err != nil {
			return err
		}
	}
	if datagrams {
		return nil
	}
	if _, err := conn.Write(stream); err != nil {
		return err
	}
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("a connection of %T does not end one side", conn)
	}
	if err := half.CloseWrite(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		return fmt.Errorf("the server did not say that it has read everything: %w", err)
	}
	return nil
}

// message is a message of RFC 5424, section 6. It has no structured data, because the record contains everything.
func message(host string, r *audit.Record, line []byte) []byte {
	const logAudit = 13
	head := fmt.Sprintf("<%d>1 %s %s tgad - %s - ", logAudit*8+r.Severity().Syslog, r.Time, word(host, 255), word(r.Action, 32))
	return append([]byte(head), line[:len(line)-1]...)
}

// word is a field of a header: visible ASCII, or "-".
func word(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
	if s = s[:min(len(s), most)]; s == "" {
		return "-"
	}
	return s
}
