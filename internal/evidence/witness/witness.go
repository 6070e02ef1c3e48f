package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/listen"
	"github.com/tgad/tgad/schemas/tga"
)

// Trust says which keys sign for which origin. An origin may have several: while a store hands its
// key over, both are in use.
type Trust map[string][]*checkpoint.Keys

// Add reads one line, "ORIGIN KEY": the origin of a store and a public key in the text form of a
// signed note.
func (t Trust) Add(line string) error {
	i := strings.LastIndexAny(line, " \t") // an origin may have blanks in it, a key has none
	origin, public := strings.TrimSpace(line[:max(i, 0)]), line[i+1:]
	if origin == "" {
		return tga.Errorf(tga.ValidationError, "trust %.200q: want an origin, a blank, and a public key", line)
	}
	k, err := checkpoint.TrustKeys(origin, public)
	if err != nil {
		return tga.Errorf(tga.ValidationError, "trust %.200q: %w", line, err)
	}
	if t[origin] == nil && len(t) >= maxOrigins {
		return tga.Errorf(tga.LimitExceeded, "trust in more than %d origins", maxOrigins)
	}
	t[origin] = append(t[origin], k)
	return nil
}

// open returns the checkpoint of a request, if a trusted key of its origin signed it.
func (t Trust) open(r *request) (c checkpoint.Checkpoint, err error) {
	keys := t[r.claim.Origin]
	if len(keys) == 0 {
		return c, &refusal{http.StatusNotFound, "the origin is not known here"}
	}
	for _, k := range keys {
		if c, _, err = k.OpenSent(r.raw); err == nil {
			return c, nil
		}
	}
	return c, &refusal{http.StatusForbidden, "no trusted key of the origin signed the checkpoint"}
}

// Witness answers requests.
type Witness struct {
	key   *Key
	trust Trust
	state *State
	log   *slog.Logger
}

// New returns a witness. It signs checkpoints with key if a key of trust signed them, and remembers
// them in state.
func New(key *Key, trust Trust, state *State, log *slog.Logger) *Witness {
	return &Witness{key, trust, state, log}
}

// ServeHTTP implements [http.Handler].
//
//	200  the line of the cosignature
//	400  the request is malformed, or its old size is larger than that of its checkpoint
//	403  no trusted key of the origin signed the checkpoint
//	404  the origin, or the path, is not known
//	405  the method is not POST
//	409  the old size is not that of the newest checkpoint that was signed, or there is another head
//	     for the same size; the body is the size of that checkpoint
//	413  the body is longer than [MaxRequest]
//	422  the proof does not show that the tree grew from that checkpoint
//	503  the checkpoint could not be made durable; or there are too many origins
func (w *Witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/add-checkpoint" {
		http.Error(rw, "want POST /add-checkpoint", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost {
		rw.Header().Set("Allow", http.MethodPost)
		http.Error(rw, "want POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, int64(MaxRequest)))
	var line []byte
	if err == nil {
		line, err = w.add(body)
	}
	var refused *refusal
	var long *http.MaxBytesError
	switch {
	case err == nil:
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.answer(rw, line)
	case errors.As(err, &refused) && refused.status == http.StatusConflict:
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(refused.status)
		w.answer(rw, []byte(refused.text+"\n"))
	case errors.As(err, &refused):
		http.Error(rw, refused.text, refused.status)
	case errors.As(err, &long):
		http.Error(rw, fmt.Sprintf("more than %d bytes", MaxRequest), http.StatusRequestEntityTooLarge)
	case tga.CodeOf(err) != "":
		w.log.Error("a checkpoint is not signed", "error", err)
		http.Error(rw, "the checkpoint cannot be remembered", http.StatusServiceUnavailable)
	default:
		http.Error(rw, "the body cannot be read", http.StatusBadRequest)
	}
}

// answer writes an answer. A store that does not get it asks again.
func (w *Witness) answer(rw http.ResponseWriter, body []byte) {
	if _, err := rw.Write(body); err != nil {
		w.log.Debug("an answer did not arrive", "error", err)
	}
}

// add returns the cosignature of the checkpoint in a request, once it is durable.
func (w *Witness) add(body []byte) (line []byte, err error) {
	r, err := parse(body)
	if err != nil {
		return nil, err
	}
	c, err := w.trust.open(r)
	if err != nil {
		return nil, err
	}
	allowed := func(seen checkpoint.Checkpoint) error {
		err := judge(r.old, r.proof, c, seen)
		w.tell(r, c, seen, err)
		return err
	}
	text := r.raw[:bytes.LastIndex(r.raw, []byte("\n\n"))+1]
	done := func() error {
		signed, err := note.Sign(&note.Note{Text: string(text)}, w.key)
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "sign checkpoint %d of %s: %w", c.Size, c.Origin, err)
		}
		line = signed[len(text)+1:]
		return nil
	}
	if err := w.state.Raise(c, r.raw, allowed, done); err != nil {
		return nil, err
	}
	return line, nil
}

// tell logs a checkpoint that a trusted key signed and the witness does not sign. Two signed heads for
// one size prove that the store has two histories. So the log contains the signed checkpoint.
func (w *Witness) tell(r *request, c, seen checkpoint.Checkpoint, err error) {
	log := w.log.With("origin", c.Origin, "size", c.Size, "head", c.Head.String(), "seen", seen.Size)
	var refused *refusal
	switch {
	case err == nil:
		log.Debug("a checkpoint is signed")
	case !errors.As(err, &refused):
	case refused.status == http.StatusConflict && c.Size == seen.Size && c.Head != seen.Head:
		log.Error("the store has two histories: another head was signed for the same size", "seen_head", seen.Head.String(), "checkpoint", string(r.raw))
	case refused.status == http.StatusUnprocessableEntity:
		log.Warn("a checkpoint came without the proof that it grew from what was signed", "seen_head", seen.Head.String(), "checkpoint", string(r.raw))
	case c.Size < seen.Size:
		log.Warn("a checkpoint is older than what was signed: the store may have been rolled back, or somebody repeats what it said before")
	}
}

// Times of the server.
const (
	requestTime = 10 * time.Second
	idleTime    = 2 * time.Minute
)

// Serve answers on l until ctx ends. It then waits for the requests under way, and closes l.
func (w *Witness) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: w, ReadTimeout: requestTime, WriteTimeout: 2 * requestTime, IdleTimeout: idleTime, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(w.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- listen.HTTP(srv, l) }()
	select {
	case err := <-served:
		return tga.Errorf(tga.StoreUnavailable, "witness: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*requestTime)
	defer cancel()
	err := srv.Shutdown(last)
	<-served
	if err != nil {
		return errors.Join(tga.Errorf(tga.StoreUnavailable, "witness: requests were under way at the end: %w", err), srv.Close())
	}
	return nil
}
