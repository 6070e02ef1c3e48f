package daemon

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// budget limits the bytes of all request bodies in memory together. A body takes from it as it is
// read, so a body that the client does not finish takes about as much as was sent of it. It
// gives everything back when its request, and the call that the request started, are over.
//
// One uid gets at most half, so that it cannot use up the half of the others.
type budget struct {
	most, mostOfUID int64

	mu    sync.Mutex
	taken int64
	ofUID map[uint32]int64
}

func newBudget(most, largest int64) *budget {
	return &budget{most: most, mostOfUID: max(most/2, largest), ofUID: map[uint32]int64{}}
}

func (b *budget) take(uid uint32, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ofUID[uid]+n > b.mostOfUID:
		return busy("the bodies of this peer's requests are over %d bytes together", b.mostOfUID)
	case b.taken+n > b.most:
		return busy("the bodies of all requests are over %d bytes together", b.most)
	}
	b.taken += n
	b.ofUID[uid] += n
	return nil
}

func (b *budget) give(uid uint32, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	if b.ofUID[uid] -= n; b.ofUID[uid] == 0 {
		delete(b.ofUID, uid)
	}
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// busy refuses a request for lack of room. The client may repeat it when other requests are over.
func busy(format string, args ...any) error {
	return statusError{tga.Errorf(tga.LimitExceeded, format, args...), http.StatusServiceUnavailable}
}

// share is what a body has taken of the budget. It goes back when the last user of the body calls
// release.
type share struct {
	of    *budget
	uid   uint32
	taken int64
	users atomic.Int32
}

func (s *share) hold() { s.users.Add(1) }

func (s *share) release() {
	if s.users.Add(-1) == 0 && s.taken > 0 {
		s.of.give(s.uid, s.taken)
	}
}

const (
	firstRead = 4 << 10 // size of the first buffer of a body, in bytes; later ones are twice as large

	// discarded is how many bytes of a refused body are read after the refusal, within the
	// body timeout. A client that writes its whole body before it reads would otherwise see a
	// broken pipe instead of the answer.
	discarded = 64 << 20
)

// readBody reads a request's body, limited in size, and in time by [Daemon.ServeHTTP], and passes all of it through the
// gate. So the code after it never sees text that two parsers could read differently.
func (q *request) readBody() error {
	limits := q.d.conf().Limits
	most := limits.RequestBytes.N
	if q.r.ContentLength > most {
		q.refused = true
		return tga.Errorf(tga.LimitExceeded, "the body has %d bytes: the limit is %d", q.r.ContentLength, most)
	}
	raw, err := q.readAll(most)
	if err != nil {
		return err
	}
	if err := http.NewResponseController(q.w).SetReadDeadline(time.Time{}); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "end the bound of the body's time: %w", err)
	}
	if len(raw) == 0 {
		return nil
	}
	q.body = raw
	return tga.Gate(raw, tga.Limits{MaxBytes: int(most), MaxDepth: limits.Depth + envelopeDepth})
}

// readAll reads a body of at most the given bytes. Its buffer grows with the data that arrives, and
// each growth is taken from the budget first.
func (q *request) readAll(most int64) ([]byte, error) {
	end := most + 1 // one byte more shows that the body is too long
	if n := q.r.ContentLength; n >= 0 {
		end = n + 1 // room for one byte more, so that the last Read can return EOF
	}
	var raw []byte
	for {
		if len(raw) == cap(raw) {
			room := min(max(2*int64(cap(raw)), firstRead), end)
			if err := q.share.of.take(q.peer.uid, room-int64(cap(raw))); err != nil {
				q.refused = true
				return nil, err
			}
			q.share.taken += room - int64(cap(raw))
			raw = append(make([]byte, 0, room), raw...)
		}
		n, err := q.r.Body.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		switch {
		case int64(len(raw)) > most:
			q.refused = true
			return nil, tga.Errorf(tga.LimitExceeded, "the body is over %d bytes", most)
		case errors.Is(err, io.EOF):
			return raw, nil
		case err != nil:
			q.w.Header().Set("Connection", "close")
			return nil, tga.Errorf(tga.ValidationError, "the body broke off after %d bytes: %w", len(raw), err)
		}
	}
}

// refuseBody answers a request at once although its body is not read to its end. After the answer
// it reads the rest, so that a client that is still writing gets the answer (see discarded).
func (q *request) refuseBody(err error) {
	q.share.release() // nothing of the body is kept
	q.share = &share{of: q.share.of}
	q.share.hold()
	q.w.Header().Set("Connection", "close")
	control := http.NewResponseController(q.w)
	// Without full duplex the server reads a part of the body before it writes the answer.
	err2 := errors.Join(control.EnableFullDuplex(), control.SetReadDeadline(time.Now().Add(q.d.conf().Limits.BodyTimeout.D)))
	q.refuse(err)
	if err2 = errors.Join(err2, control.Flush()); err2 == nil {
		_, err2 = io.CopyN(io.Discard, q.r.Body, discarded)
	}
	if err2 != nil && !errors.Is(err2, io.EOF) {
		q.d.log.Debug("the rest of a refused body was not read", "path", q.r.URL.Path, "error", err2)
	}
}
