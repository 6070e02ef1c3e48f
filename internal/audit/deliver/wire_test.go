package deliver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/audit"
	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/schemas/tga"
)

// two are records of different severity.
func two() *Batch {
	b := &Batch{After: 3, Last: 5, Records: []audit.Record{
		{ID: "t:1", Action: "request", Time: 1700000000123},
		{ID: "t:n1", Action: "note.doubt", Time: 1700000000124},
	}}
	b.Lines = [][]byte{[]byte(`{"id":"one"}` + "\n"), []byte(`{"id":"two"}` + "\n")}
	return b
}

var rfc5424 = regexp.MustCompile(`^<(\d{1,3})>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([!-~]{1,255}) tgad - ([!-~]{1,32}) - (.*)$`)

// wantMessages checks two messages of [two].
func wantMessages(t *testing.T, got []string) {
	t.Helper()
	if len(got) != 2 {
		t.Fatalf("messages %q", got)
	}
	for i, want := range [][]string{{"110", "2023-11-14T22:13:20.123Z", "h", "request", `{"id":"one"}`}, {"108", "2023-11-14T22:13:20.124Z", "h", "note.doubt", `{"id":"two"}`}} {
		m := rfc5424.FindStringSubmatch(got[i])
		if m == nil || strings.Join(m[1:], " ") != strings.Join(want, " ") {
			t.Errorf("message %q, want %q", got[i], want)
		}
	}
}

// TestSyslogDatagrams: each record is one message, over a socket of this machine and over UDP.
func TestSyslogDatagrams(t *testing.T) {
	dir, err := os.MkdirTemp("", "log") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for network, at := range map[string][2]string{Unix: {"unixgram", filepath.Join(dir, "log")}, UDP: {"udp", "127.0.0.1:0"}} {
		l, err := net.ListenPacket(at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		s := &Syslog{Network: network, Address: l.LocalAddr().String(), Host: "h"}
		if err := s.Put(t.Context(), two()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for range 2 {
			buf := make([]byte, 1<<16)
			if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			n, _, err := l.ReadFrom(buf)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(buf[:n]))
		}
		wantMessages(t, got)
		long := two()
		long.Lines[0] = []byte(strings.Repeat("x", 1<<17) + "\n")
		if err := s.Put(t.Context(), long); err != nil {
			t.Errorf("%s: a record that is longer than a datagram: %v", network, err)
		}
		l.Close()
		if err := s.Put(t.Context(), two()); network == Unix && err == nil {
			t.Error("nobody takes it, and it counts as taken")
		}
	}
}

// TestSyslogStreams: messages are sent with their lengths. A batch counts as accepted when the server has
// read all of it, and not if the server goes away earlier.
func TestSyslogStreams(t *testing.T) {
	certs := httptest.NewTLSServer(nil)
	defer certs.Close()
	ca := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certs.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	trusted, err := verify.Trusting(ca)
	if err != nil {
		t.Fatal(err)
	}
	for network, conf := range map[string]*tls.Config{TCP: nil, TLS: {Certificates: certs.TLS.Certificates, MinVersion: tls.VersionTLS12}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if conf != nil {
			l = tls.NewListener(l, conf)
		}
		read := make(chan string, 4)
		go func() {
			for n := 0; ; n++ {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if n == 0 { // it dies before it has read everything
					_, _ = io.ReadFull(c, make([]byte, 10))
					if tcp, ok := c.(*net.TCPConn); ok {
						_ = tcp.SetLinger(0)
					} else {
						_ = c.(*tls.Conn).NetConn().(*net.TCPConn).SetLinger(0)
						c = c.(*tls.Conn).NetConn()
					}
					c.Close()
					continue
				}
				all, _ := io.ReadAll(c)
				read <- string(all)
				c.Close()
			}
		}()
		s := &Syslog{Network: network, Address: l.Addr().String(), TLS: trusted, Host: "h"}
		if err := s.Put(t.Context(), two()); err == nil {
			t.Errorf("%s: the server died, and what it had not read counts as taken", network)
		}
		if err := s.Put(t.Context(), two()); err != nil {
			t.Fatalf("%s: %v", network, err)
		}
		var got []string
		for rest := <-read; rest != ""; {
			length, after, _ := strings.Cut(rest, " ")
			n, err := strconv.Atoi(length)
			if err != nil || n > len(after) {
				t.Fatalf("%s: %q", network, rest)
			}
			got, rest = append(got, after[:n]), after[n:]
		}
		wantMessages(t, got)
		if network == TLS {
			s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
			if err := s.Put(t.Context(), two()); err == nil {
				t.Error("a server that nobody trusts is sent records")
			}
		}
		l.Close()
	}
}

// TestSyslogServerThatHangsHoldsNobodyUp: a server that accepts a connection and reads nothing, or reads and
// does not confirm it, is waited for no longer than the caller allows.
func TestSyslogServerThatHangsHoldsNobodyUp(t *testing.T) {
	long := two()
	long.Lines[1] = append(bytes.Repeat([]byte("x"), 8<<20), '\n')
	for name, b := range map[string]*Batch{"reads nothing": long, "does not say so": two()} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			taken := make(chan net.Conn, 1)
			go func() {
				if c, err := l.Accept(); err == nil {
					taken <- c
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			said := make(chan error, 1)
			go func() { said <- (&Syslog{Network: TCP, Address: l.Addr().String()}).Put(ctx, b) }()
			defer func(c net.Conn) { _ = c.Close() }(<-taken)
			select {
			case err := <-said:
				t.Fatalf("it was taken: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			cancel()
			select {
			case err := <-said:
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Error("it is waited for")
			}
		})
	}
}

const (
	published = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // from the example in the specification of Standard Webhooks
	another   = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
)

func secrets(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSignatureIsThePublishedOne: the signature equals that of the example with which the libraries of
// Standard Webhooks are tested.
func TestSignatureIsThePublishedOne(t *testing.T) {
	keys, err := Secrets(secrets(t, published+"\n\n"+another+"\n"))
	if err != nil || len(keys) != 2 {
		t.Fatal(keys, err)
	}
	got := sign(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if first, second, _ := strings.Cut(got, " "); first != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" || !strings.HasPrefix(second, "v1,") || second == first {
		t.Errorf("signatures %s", got)
	}
	for _, text := range []string{"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_AAEC", "whsec_!", published + "\nx", "whsec_" + strings.Repeat("AAAA", 22)} {
		if _, err := Secrets(secrets(t, text)); err == nil || strings.Contains(err.Error(), "AAE") || strings.Contains(err.Error(), "MfK") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestWebhookPostsWhatItSigned: each form has its content type, the operator's headers, and an id that stays
// the same in a repeat. The keys are read anew for each message.
func TestWebhookPostsWhatItSigned(t *testing.T) {
	var got []*http.Request
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got, bodies = append(got, r), append(bodies, string(body))
	}))
	defer server.Close()
	headers := secrets(t, "Authorization: Bearer x\n")
	for i, format := range audit.Formats {
		key := secrets(t, published)
		w := NewWebhook(Webhook{ID: "w", URL: server.URL, SecretFile: key, HeadersFile: headers, Format: format, Clock: func() time.Time { return time.Unix(1614265330, 5) }}, nil)
		defer w.Close()
		for range 2 {
			if err := w.Put(t.Context(), two()); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(key, []byte(another), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		first, second := got[2*i], got[2*i+1]
		for n, r := range []*http.Request{first, second} {
			body := bodies[2*i+n]
			keys, err := Secrets(secrets(t, []string{published, another}[n]))
			if err != nil {
				t.Fatal(err)
			}
			if want := sign(keys, "w-3-5", "1614265330", []byte(body)); r.Header.Get("webhook-signature") != want || r.Header.Get("webhook-id") != "w-3-5" || r.Header.Get("webhook-timestamp") != "1614265330" || r.Method != "POST" || r.Header.Get("Authorization") != "Bearer x" {
				t.Errorf("%s: %s %v, want the signature %s", format, r.Method, r.Header, want)
			}
			var list []struct{ ID string }
			if format == "cef" {
				if body != "{\"id\":\"one\"}\n{\"id\":\"two\"}\n" {
					t.Errorf("%q", body)
				}
			} else if err := json.Unmarshal([]byte(body), &list); err != nil || len(list) != 2 || list[1].ID != "two" {
				t.Errorf("%s: %q, %v", format, body, err)
			}
			if want := map[string]string{"cloudevents": "application/cloudevents-batch+json", "ocsf": "application/json", "cef": "text/plain; charset=utf-8"}[format]; r.Header.Get("Content-Type") != want {
				t.Errorf("%s is of type %s", format, r.Header.Get("Content-Type"))
			}
		}
	}
}

// TestWebhookTakesNoOtherAnswer: only a status of 200 to 299 is an acceptance. A redirect is not followed.
// No error repeats the address.
func TestWebhookTakesNoOtherAnswer(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(status)
	}))
	w := NewWebhook(Webhook{URL: server.URL + "/?token=s3cret", SecretFile: secrets(t, published), Format: "ocsf", Clock: time.Now}, nil)
	defer w.Close()
	for _, status = range []int{200, 202, 204, 299, 300, 302, 307, 308, 400, 401, 410, 429, 500, 503} {
		err := w.Put(t.Context(), two())
		if (err == nil) != (status < 300) || err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%d: %v", status, err)
		}
	}
	server.Close()
	if err := w.Put(t.Context(), two()); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("nobody is there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Put(ctx, two()); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("given up: %v", err)
	}
}

// TestHostileWordsStayInTheHeader: an invalid name of an application cannot leave its header field.
func TestHostileWordsStayInTheHeader(t *testing.T) {
	for s, want := range map[string]string{"": "-", " \n\t": "-", "a b\n<1>1": "ab<1>1", "é": "-", strings.Repeat("x", 40): strings.Repeat("x", 32)} {
		if got := word(s, 32); got != want {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
	}
	m := string(message("h", &audit.Record{Action: "request", Time: tga.Millis(0)}, []byte("x\n")))
	if !rfc5424.MatchString(m) {
		t.Errorf("%q", m)
	}
}
