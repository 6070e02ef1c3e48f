package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Session is a world and its process under random commands. A command does not check its own
// result: [Session.Check] checks the properties afterwards.
type Session struct {
	Scenario Scenario
	run      *Run
	w        *World
	p        *Process
	rng      *rand.Rand
	image    *Image // of an armed crash that has happened
	begun    []begunCall
	backups  int
	backup   *backup // the one that the next restore is from
	last     Image   // what the newest process began with
	done     func()  // with it
	judged   moment  // what Check has found right
}

type begunCall struct {
	trace  tga.ID
	permit runtime.Permit
	req    runtime.Request
}

// NewSession opens a new store.
func (r *Run) NewSession(seed uint64, conf Config) (*Session, error) {
	s := &Session{Scenario: Scenario{Name: "rapid", Conf: conf}, run: r, w: NewWorld(seed), rng: rand.New(rand.NewPCG(seed, 5))}
	var err error
	s.p, err = s.w.Start(conf)
	s.begin(s.w.Crash(100))
	return s, err
}

// begin notes the image with which the newest process began.
func (s *Session) begin(img Image) {
	if s.done != nil {
		s.done()
	}
	s.last, s.done = img, s.run.at(img, s.Scenario.Name)
}

// moment identifies a point in the life of a world. If two moments are equal, nothing was
// written or logged and no time passed in between.
type moment struct {
	w            *World
	passed, said int
	now          tga.Millis
}

func (w *World) moment() moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return moment{w, w.passed, len(w.events), w.now}
}

// Check returns the violations of now. If the armed crash has happened, it first restarts from
// its image.
func (s *Session) Check() []Violation {
	s.run.progress.Add(1)
	var bad []Violation
	if now := s.w.moment(); s.image == nil && s.p.DB.Stats().Poisoned == "" && now != s.judged {
		bad, s.judged = s.p.judge(false), now
	}
	if s.image == nil && s.p.DB.Stats().Poisoned != "" { // before, or by Pebble's own work just now
		img := s.w.Crash(Losses[s.rng.IntN(len(Losses))])
		s.image = &img
	}
	if s.image != nil {
		return s.restart(*s.image, 0)
	}
	return bad
}

// restart starts a process on the image of a crash. With depth > 0 the recovery crashes too.
func (s *Session) restart(img Image, depth int) []Violation {
	old := s.p
	s.w.OnPoint(nil)
	s.w.OnOp(nil)
	go func() { _ = old.DB.Close() }() // the process is dead; its end is nobody's concern
	s.image, s.begun = nil, nil
	s.begin(img)
	if len(img.Path) > 0 {
		s.run.Counts.add(&s.run.Counts.CrashPoints, 1)
	}
	s.w = img.World()
	if depth > 0 {
		s.arm(1+s.rng.IntN(60), Losses[s.rng.IntN(len(Losses))], img.Path)
	}
	s.run.count(len(img.Path))
	bad := s.run.withoutIndex(s.w, s.rng.IntN(6) == 0)
	p, more := s.run.reopen(s.w, s.Scenario)
	bad = append(bad, more...)
	if p == nil {
		return bad
	}
	s.p = p
	if s.image != nil && len(bad) == 0 {
		return s.restart(*s.image, depth-1)
	}
	s.w.OnPoint(nil)
	return bad
}

// arm takes an image at the k-th point from now.
func (s *Session) arm(k, loss int, path []Point) {
	w := s.w
	w.OnPoint(func(p Point) {
		if p.N == k && s.image == nil {
			img := w.Snapshot(p, loss, path)
			s.image = &img
		}
	})
}

// Failed saves the image that the newest process began with.
func (s *Session) Failed(bad []Violation) { s.run.report(s.last, "rapid", bad) }

// Close ends the session.
func (s *Session) Close() error {
	s.w.OnPoint(nil)
	s.w.OnOp(nil)
	defer s.done()
	return s.p.DB.Close()
}

// Keys, tools and arguments are few, so that commands meet.
func (s *Session) request(server, licence, behaviour string, key, amount int) runtime.Request {
	tool := licence + "." + behaviour
	return Request(server, tool, fmt.Sprintf("%s-%s-%d", tool, server, key), amount)
}

// Create calls a tool; the same again is a repeat, another amount a conflict.
func (s *Session) Create(server, licence, behaviour string, key, amount int, retry bool) {
	req := s.request(server, licence, behaviour, key, amount)
	req.Retry = retry
	ignore(s.p.Call(0, req))
}

// Pipeline has one goroutine append to several traces at a time.
func (s *Session) Pipeline(licence string, key int, held bool) {
	s.p.pipeline(licence, fmt.Sprintf("pipeline-%s-%d", licence, key), held)
}

// Begin gives a call to a remote executor, which sends it now or never; see [Session.LateReply].
func (s *Session) Begin(licence string, key, executor int, now bool) {
	req := s.request(Allowed, licence, Answers, key+10, 5)
	id := fmt.Sprintf("executor-%d-%s", executor, req.Key)
	if now {
		s.p.begin(req, id, true)
		return
	}
	b, err := s.p.mayBegin(req, id)
	if err == nil && b.Standing == runtime.BeginSend {
		s.begun = append(s.begun, begunCall{b.Result.TraceID, b.Permit, req})
	}
}

// LateReply finishes a begun call whose executor says that its server answered.
func (s *Session) LateReply() {
	if len(s.begun) == 0 {
		return
	}
	b := s.begun[s.rng.IntN(len(s.begun))]
	s.p.finish(b.trace, b.permit, b.req)
}

// any picks a trace of the journal.
func (s *Session) any() (tga.ID, bool) {
	ids := traces(s.w.Journal())
	if len(ids) == 0 {
		return tga.ID{}, false
	}
	return ids[s.rng.IntN(len(ids))], true
}

// Vote approves a random trace. This and the next commands pick any trace. Most find a trace
// whose state does not allow the command, and are refused.
func (s *Session) Vote() { s.with(func(id tga.ID) { s.p.vote(id) }) }

// Resolve ends a call in doubt with evidence.
func (s *Session) Resolve() {
	s.with(func(id tga.ID) {
		ignore(s.p.RT.Resolve(context.Background(), id, runtime.Resolution{
			Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"asked":true}`)}, Who: "operator", Evidence: []byte("books"),
		}))
	})
}

// Abandon gives a call in doubt up.
func (s *Session) Abandon() {
	s.with(func(id tga.ID) { ignore(s.p.RT.Abandon(context.Background(), id, "operator", "")) })
}

// Recover recovers a trace.
func (s *Session) Recover() {
	s.with(func(id tga.ID) { ignore(s.p.RT.Recover(context.Background(), id)) })
}

// Checkpoint seals a trace.
func (s *Session) Checkpoint() { s.with(func(id tga.ID) { _ = s.p.Checkpoint(id) }) } // as ignore

func (s *Session) with(f func(tga.ID)) {
	if id, ok := s.any(); ok {
		f(id)
	}
}

// Archive moves the ended traces into a segment.
func (s *Session) Archive() {
	ignore(s.p.DB.SealTraces(context.Background(), tga.MillisOf(s.w.Clock())))
}

// Rewrite writes every full segment of the log anew.
func (s *Session) Rewrite() { ignore(s.p.DB.Rewrite(context.Background())) }

// ClockJump moves the clock, back too.
func (s *Session) ClockJump(seconds int) { s.w.Advance(time.Duration(seconds) * time.Second) }

// Reopen closes the process and starts another.
func (s *Session) Reopen() []Violation {
	// If Close fails, that is the armed error: then the disk is treated as after a crash.
	err := s.p.DB.Close()
	img := s.w.Crash(0)
	if err == nil {
		img.Path = nil
	}
	return s.restart(img, 0)
}

// ArmCrash makes a crash before the k-th operation from now.
func (s *Session) ArmCrash(k, loss int) { s.arm(k, loss, nil) }

// ArmError makes the k-th operation from now fail and, if sticky, all operations after it.
func (s *Session) ArmError(k int, space, sticky, done bool) {
	err := ErrIO
	if space {
		err = ErrSpace
	}
	w := s.w
	w.OnOp(func(op Op) Fault {
		if s.image != nil || op.N != k && (!sticky || op.N < k) {
			return Fault{}
		}
		return Fault{Err: err, Done: done}
	})
}

// Tear arms a crash in the middle of the next sync of a log, which reaches the disk only in part.
func (s *Session) Tear(step int) {
	w := s.w
	w.OnPoint(func(p Point) {
		if s.image != nil || p.Op != opSync || !isLog(p.Path) {
			return
		}
		g := group{img: w.Snapshot(p, 100, nil), file: p.Path}
		var err error
		if g.new, err = readFile(w.Snapshot(p, 0, nil).FS, p.Path); err != nil {
			return
		}
		if g.old, err = readFile(g.img.FS, p.Path); err != nil {
			return // its name is not on disk: nothing of it is
		}
		for what, b := range g.tears(s.rng, step) {
			if s.rng.IntN(3) == 0 {
				continue
			}
			g.img.Path[0].Op = "torn sync: " + what
			if writeFile(g.img.FS, p.Path, b) == nil {
				s.image = &g.img
			}
			return
		}
	})
}

// CrashInRecovery kills the process, and then its recovery, up to depth times.
func (s *Session) CrashInRecovery(loss, depth int) []Violation {
	return s.restart(s.w.Crash(loss), depth)
}
