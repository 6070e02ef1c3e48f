package crashtest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/schemas/tga"
)

// transport calls an HTTP tool server that breaks connections: after an earlier answer, so
// that the client may have reused the connection; in the middle of a request; in the middle
// of an answer. However the HTTP client handles that, an attempt may be on the wire only once.
func (r *Run) transport(seed uint64) {
	w := NewWorld(seed)
	p, err := w.Start(Config{})
	if err != nil {
		return // Explore reports it
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.Found(Violation{Property: "setup", Detail: err.Error(), Where: "transport"})
		return
	}
	server := &http.Server{Handler: toolServer{w}, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // ends when it is closed
	tools, err := httpcall.New("http://"+l.Addr().String(), httpcall.Options{})
	if err == nil {
		p.RT, err = w.runtime(recorder{p.DB, w}, Config{}, tools)
	}
	var bad []Violation
	if err != nil {
		bad = append(bad, Violation{Property: "setup", Detail: err.Error()})
	} else {
		for _, licence := range []string{"park", "dedupe_key", "dedupe_args"} {
			for i, behaviour := range []string{Answers, "breaks", Answers, "breaks_answer", Answers, "breaks_early"} {
				ignore(p.Call(0, Request(Allowed, licence+"."+behaviour, fmt.Sprintf("wire-%d", i), 5+i)))
			}
		}
		bad = p.judge(false)
	}
	if tools != nil {
		if err := tools.Close(); err != nil {
			bad = append(bad, Violation{Property: "L1", Detail: "close the connections: " + err.Error()})
		}
	}
	_ = server.Close() // what it was asked is in the journal
	if err := p.DB.Close(); err != nil {
		bad = append(bad, Violation{Property: "L1", Detail: "close: " + err.Error()})
	}
	r.report(w.Crash(100), "transport", bad)
}

// toolServer is the HTTP server of a world's tools.
type toolServer struct{ w *World }

func (s toolServer) ServeHTTP(out http.ResponseWriter, q *http.Request) {
	tool := strings.TrimPrefix(q.URL.Path, "/")
	licence, behaviour := licenceOf(tool)
	breaks := func() {
		if conn, _, err := http.NewResponseController(out).Hijack(); err == nil {
			_ = conn.Close() // its peer sees it
		}
	}
	args, err := io.ReadAll(q.Body)
	trace, err1 := tga.ParseID(q.Header.Get("Tgad-Trace-Id"))
	id, err2 := tga.ParseID(q.Header.Get("Tgad-Tool-Call-Id"))
	attempt, err3 := strconv.ParseUint(q.Header.Get("Tgad-Attempt"), 10, 32)
	if err != nil || err1 != nil || err2 != nil || err3 != nil {
		out.WriteHeader(http.StatusBadRequest)
		return
	}
	key := q.Header.Get("Idempotency-Key")
	call := runtime.Call{TraceID: trace, ToolCallID: id, Attempt: uint32(attempt), Server: Allowed, Tool: tool, Args: args, Key: key}
	again := s.w.sent(trace, call.Attempt-1)
	s.w.log(Event{Kind: Sent, Trace: trace, Key: key, Tool: tool, Call: call, At: tga.MillisOf(s.w.Clock())})
	if behaviour == "breaks_early" && !again {
		breaks()
		return
	}
	if !again || licence == "park" {
		s.w.log(Event{Kind: Acted, Trace: trace, Key: key, Tool: tool, Call: call})
	}
	switch {
	case behaviour == "breaks" && !again:
		breaks()
	case behaviour == "breaks_answer" && !again:
		out.Header().Set("Content-Length", "100")
		_, _ = out.Write([]byte(`{"half":`))
		breaks()
	default:
		_, _ = out.Write(answer(Answers, call).Result)
	}
}
