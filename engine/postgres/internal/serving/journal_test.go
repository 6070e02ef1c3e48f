package serving_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// arrival is one call that reached the tool server.
type arrival struct {
	at      time.Duration // since the trial began
	replica int           // that sent it; executor where an executor did by itself
	tool    string
	key     string
	trace   string
	attempt string
	number  int // of the key's arrivals
}

const executor = -1

func (a arrival) String() string {
	return fmt.Sprintf("%s at %s from %d, trace %s attempt %s", a.tool, a.at.Round(time.Millisecond), a.replica, a.trace, a.attempt)
}

// value is what the tool answers. Each charge that was really made has another one.
func (a arrival) value() string {
	n := a.number
	if a.tool == "charge" {
		n = 1 // it knows the key again
	}
	return fmt.Sprintf(`{"key":%q,"number":%d}`, a.key, n)
}

// journal is the outside world: a tool server that writes down what reaches it.
type journal struct {
	*httptest.Server
	began time.Time

	mu       sync.Mutex
	byKey    map[string][]arrival
	byTrace  map[string][]arrival
	deserted map[string]bool          // traces whose executor will say nothing
	denied   map[string]time.Duration // traces of which a person said that they were not sent
}

func newJournal(t *testing.T, began time.Time) *journal {
	j := &journal{began: began, byKey: map[string][]arrival{}, byTrace: map[string][]arrival{}, deserted: map[string]bool{}, denied: map[string]time.Duration{}}
	j.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // it did not arrive whole: nothing is done
		}
		replica, tool, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		from, err := strconv.Atoi(replica)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		a := j.arrive(arrival{replica: from, tool: tool, key: r.Header.Get("Idempotency-Key"), trace: r.Header.Get("Tgad-Trace-Id"), attempt: r.Header.Get("Tgad-Attempt")})
		time.Sleep(work())
		fmt.Fprint(w, a.value())
	}))
	t.Cleanup(func() {
		j.CloseClientConnections()
		j.Close()
	})
	return j
}

// work is how long the tool takes: most often little, sometimes as long as a fault.
func work() time.Duration {
	switch n := rand.IntN(100); {
	case n < 70:
		return time.Duration(rand.IntN(10)) * time.Millisecond
	case n < 96:
		return time.Duration(10+rand.IntN(70)) * time.Millisecond
	}
	return time.Duration(300+rand.IntN(900)) * time.Millisecond
}

func (j *journal) now() time.Duration { return time.Since(j.began) }

func (j *journal) arrive(a arrival) arrival {
	j.mu.Lock()
	defer j.mu.Unlock()
	a.at, a.number = j.now(), len(j.byKey[a.key])+1
	j.byKey[a.key] = append(j.byKey[a.key], a)
	j.byTrace[a.trace] = append(j.byTrace[a.trace], a)
	return a
}

// arriveOnce is the send of an executor, which makes one for each attempt: asked again, it knows.
func (j *journal) arriveOnce(a arrival) arrival {
	j.mu.Lock()
	for _, b := range j.byTrace[a.trace] {
		if b.attempt == a.attempt {
			j.mu.Unlock()
			return b
		}
	}
	j.mu.Unlock()
	return j.arrive(a)
}

// look is what a person sees who looks for the call of a trace. Who finds nothing says so, and that
// has to stay true.
func (j *journal) look(trace tga.ID) (a arrival, sent bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := j.byTrace[trace.String()]
	if len(list) == 0 {
		j.denied[trace.String()] = j.now()
		return a, false
	}
	return list[0], true
}

// denials is of how many traces a person said that they were not sent.
func (j *journal) denials() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.denied)
}

func (j *journal) desert(trace tga.ID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.deserted[trace.String()] = true
}

func (j *journal) isDeserted(trace tga.ID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.deserted[trace.String()]
}
