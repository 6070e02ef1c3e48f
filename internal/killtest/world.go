package killtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/tgad/tgad/internal/killtest/adapter"
)

// world is the payment service. Each request is a charge, unless the service deduplicates.
type world struct {
	dedupes bool
	server  http.Server
	url     string

	mu       sync.Mutex
	charges  map[string]int
	receipts map[string]int64 // by the header Idempotency-Key
	last     int64
	armed    trap
}

// trap makes the world kill the sender of a request at a point of that request, once.
type trap struct {
	point Point
	key   string
	kill  func()
}

func newWorld(dedupes bool) (*world, error) {
	w := &world{dedupes: dedupes, charges: map[string]int{}, receipts: map[string]int64{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.url = "http://" + l.Addr().String() + "/charge"
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charge", w.charge)
	w.server.Handler = mux
	go w.serve(l)
	return w, nil
}

// serve returns when the server is closed. Any other end is logged.
func (w *world) serve(l net.Listener) {
	if err := w.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		slog.Error("the payment service of the kill test has ended", "error", err)
	}
}

func (w *world) close() error { return w.server.Close() }

// arm sets a trap in place of the one before; the zero trap kills nobody.
func (w *world) arm(t trap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = t
}

// made returns how many charges of a key were made.
func (w *world) made(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.charges[key]
}

// total returns how many keys were charged, and the number of charges.
func (w *world) total() (keys, charges int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.charges {
		charges += n
	}
	return len(w.charges), charges
}

// charge handles one request.
func (w *world) charge(rw http.ResponseWriter, r *http.Request) {
	var order struct {
		Key    string `json:"key"`
		Amount int    `json:"amount"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, adapter.MaxLine))
	if err == nil {
		err = json.Unmarshal(body, &order)
	}
	if err != nil || order.Key == "" || order.Amount < 1 {
		http.Error(rw, fmt.Sprintf("want a key and an amount: %v", err), http.StatusBadRequest)
		return
	}
	if w.sprung(Arrived, order.Key) {
		panic(http.ErrAbortHandler) // the sender is dead, and nothing was charged
	}
	receipt := w.count(order.Key, r.Header.Get("Idempotency-Key"))
	if w.sprung(Done, order.Key) {
		panic(http.ErrAbortHandler)
	}
	answer := fmt.Sprintf("{\"receipt\":%d}\n", receipt)
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Content-Length", fmt.Sprint(len(answer)))
	if _, err := io.WriteString(rw, answer); err != nil {
		return // who asked has died
	}
	if err := http.NewResponseController(rw).Flush(); err == nil {
		w.sprung(Answered, order.Key)
	}
}

// count makes a charge, unless it dedupes and has made one under the header's key.
func (w *world) count(key, header string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if receipt, ok := w.receipts[header]; ok && w.dedupes {
		return receipt
	}
	w.last++
	w.charges[key]++
	if header != "" {
		w.receipts[header] = w.last
	}
	return w.last
}

// sprung kills if the trap is for this key and point, and reports whether it did. It holds the lock while it
// kills, so that the trap works for one request only.
func (w *world) sprung(p Point, key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.armed
	if t.kill == nil || t.key != key || t.point != p {
		return false
	}
	w.armed = trap{}
	t.kill()
	return true
}
