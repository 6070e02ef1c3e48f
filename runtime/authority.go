package runtime

import (
	"encoding/json"
	"strings"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Subject is what somebody wants to write.
type Subject uint8

// Subjects. A call that is never sent and its effect are one statement: they share a
// batch.
const (
	ARequest Subject = iota
	AnApproval
	ADenial
	ACall
	AnUnsentCall
	AnEffect
)

var subjectWords = [...]string{"a request", "an approval", "a denial", "a call", "a call that is never sent", "an effect"}

// String returns the words of messages.
func (s Subject) String() string { return subjectWords[s] }

// Writer is the right by which somebody writes.
type Writer uint8

// Writers.
const (
	ByProcess Writer = iota // this process: its own requests, decisions and calls, and the answers that it got
	ByVotes                 // the counted votes of people
	ByPermit                // the holder of a permit that a Begin issued
	ByProbe                 // the tool server, asked about a call in doubt
	ByPerson                // a person who vouches for it: resolve, abandon
	ByPeer                  // a peer that appends an artifact of its own making: a raw append
)

var writerWords = [...]string{"process", "votes", "permit", "probe", "person", "peer"}

// String returns the word of messages and tests.
func (w Writer) String() string { return writerWords[w] }

// Origin says who did what an artifact is about: for a decision or a call, who made the
// request; for an effect, who sent the newest attempt.
type Origin uint8

// Origins. The log has the origin: a raw append leaves a note of kind appended in its own
// batch, a Begin marks request and call as external, and this process did everything else.
const (
	OfNobody   Origin = 1 << iota // the trace has no entry
	OfProcess                     // this process
	OfExecutor                    // a remote executor, by Begin
	OfWriter                      // the very peer that appends now
	OfAnother                     // another peer, by a raw append
)

// Rights is what the operator's configuration gives a peer.
type Rights uint8

// Rights.
const (
	RightAppend Rights = 1 << iota // the verb append
	RightDecide                    // the verb decide
	RightAdmin                     // the verb admin
	RightSign                      // it is a remote supervisor that the operator configured
	RightSelf                      // a submitter may approve its own request
)

var rightWords = [...]string{
	"the verb append", "the verb decide", "the verb admin",
	"a [[supervisor]] of the configuration that names the peer", "approval.self = true, because it submitted the request",
}

func (r Rights) words() string {
	var all []string
	for i, w := range rightWords {
		if r&(1<<i) != 0 {
			all = append(all, w)
		}
	}
	return strings.Join(all, " and ")
}

// Claim is one question to the table of who may write what.
type Claim struct {
	Subject Subject
	Writer  Writer
	Origin  Origin
	Rights  Rights
}

// grant is a row: this writer may write this subject about something that one of these origins
// did, if it has all these rights.
type grant struct {
	subject Subject
	writer  Writer
	origins Origin
	needs   Rights
}

const (
	anyRequest = OfProcess | OfExecutor | OfAnother
	anySender  = OfProcess | OfExecutor | OfAnother
)

// grants is the whole matrix (docs/SEMANTICS.md). A claim that no row allows is refused.
//
// The rule behind it: whoever did something records its outcome. So a raw append never ends a
// call that this process or another executor sent. It also lets nothing be sent that neither
// the supervisor, nor the votes, nor a configured remote supervisor approved.
var grants = [...]grant{
	{ARequest, ByProcess, OfNobody, 0},
	{AnApproval, ByProcess, anyRequest, 0},
	{ADenial, ByProcess, anyRequest, 0},
	{ACall, ByProcess, OfProcess | OfAnother, 0},
	{AnUnsentCall, ByProcess, anyRequest, 0},
	{AnEffect, ByProcess, OfProcess, 0},

	{AnApproval, ByVotes, anyRequest, RightDecide},
	{ADenial, ByVotes, anyRequest, RightDecide},

	{ACall, ByPermit, OfExecutor, 0},
	{AnEffect, ByPermit, OfExecutor, 0},

	{AnEffect, ByProbe, anySender, 0},
	{AnEffect, ByPerson, anySender, RightAdmin},
	{AnUnsentCall, ByPerson, anyRequest, RightAdmin},

	{ARequest, ByPeer, OfNobody, RightAppend},
	{AnApproval, ByPeer, anyRequest, RightDecide | RightSign},
	{AnApproval, ByPeer, OfWriter, RightDecide | RightSign | RightSelf},
	{ADenial, ByPeer, anyRequest | OfWriter, RightDecide},
	{ACall, ByPeer, OfWriter, RightAppend},
	{AnUnsentCall, ByPeer, OfWriter, RightAppend},
	{AnEffect, ByPeer, OfWriter, RightAppend},
}

// MayAppend reports whether a claim is allowed: nil, or PERMISSION_DENIED with what is
// missing. It depends on nothing but the claim. Every way in which an artifact reaches the
// log calls it.
func MayAppend(c Claim) error {
	for _, g := range grants {
		if g.subject != c.Subject || g.writer != c.Writer || g.origins&c.Origin == 0 {
			continue
		}
		if missing := g.needs &^ c.Rights; missing != 0 {
			return tga.Errorf(tga.PermissionDenied, "%s takes %s", c.Subject, missing.words())
		}
		return nil
	}
	return tga.Errorf(tga.PermissionDenied, "%s about what %s did is not for a %s to write: %s", c.Subject, c.Origin, c.Writer, c.remedy())
}

// remedy names what the writer can do instead.
func (c Claim) remedy() string {
	switch {
	case c.Subject == AnEffect && c.Origin == OfExecutor:
		return "finish it with its permit, or resolve it"
	case c.Subject == AnEffect:
		return "its sender records it, a probe or a person with the verb admin resolves it"
	case c.Subject == ACall || c.Subject == AnUnsentCall:
		return "only the maker of the request may append its call"
	}
	return "a trace has one request"
}

// String returns the words of messages.
func (o Origin) String() string {
	switch o {
	case OfNobody:
		return "nobody"
	case OfProcess:
		return "the daemon"
	case OfExecutor:
		return "a remote executor"
	case OfWriter:
		return "the peer itself"
	}
	return "another peer"
}

// appendedBody is the body of an appended note: the first and the last of the entries that the
// author of the note appended raw.
type appendedBody struct {
	First uint64 `json:"first_seq"`
	Last  uint64 `json:"last_seq"`
}

// AppendedNote returns the note that names the author of a raw append. It belongs in the
// batch of the entries first to last: without it they would count as entries of this process.
func AppendedNote(who string, first, last uint64) (chain.NewNote, error) {
	body, err := json.Marshal(appendedBody{first, last})
	if err != nil {
		return chain.NewNote{}, tga.Errorf(tga.ValidationError, "note appended: %w", err)
	}
	return chain.NewNote{Kind: tga.NoteAppended, Who: who, Body: body}, nil
}

// Appender returns the peer that appended an entry of the trace raw, "" for an entry that
// this process made.
func Appender(t *chain.Trace, seq uint64) string {
	for i := range t.Notes {
		n := &t.Notes[i]
		if n.Kind != tga.NoteAppended {
			continue
		}
		var b appendedBody
		if err := json.Unmarshal(n.Body, &b); err == nil && b.First <= seq && seq <= b.Last {
			return n.Who
		}
	}
	return ""
}

// appenderOf is Appender of the trace's artifact of a type.
func appenderOf(t *chain.Trace, typ tga.ArtifactType) string {
	for i := range t.Entries {
		if t.Entries[i].Type == typ {
			return Appender(t, t.Entries[i].Seq)
		}
	}
	return ""
}

// SubmitterOf returns who submitted the trace's request: the peer that appended it raw, or the
// caller that the daemon recorded. It is "" for a program that embeds the runtime and names nobody.
func SubmitterOf(t *chain.Trace) string {
	if who := appenderOf(t, tga.RequestType); who != "" {
		return who
	}
	if t.Request == nil {
		return ""
	}
	return t.Request.Meta.String(tga.MetaSubmitter)
}

// rawOrigin distinguishes the writer's own raw append from that of another peer.
func rawOrigin(who, writer string) Origin {
	if who == writer {
		return OfWriter
	}
	return OfAnother
}

// RequestOrigin says who made the trace's request, from the view of a writer; "" stands for a
// writer that appends nothing raw.
func RequestOrigin(t *chain.Trace, writer string) Origin {
	if t == nil || len(t.Entries) == 0 {
		return OfNobody
	}
	if who := appenderOf(t, tga.RequestType); who != "" {
		return rawOrigin(who, writer)
	}
	if t.Request != nil && t.Request.Meta.String(tga.MetaExecutor) == tga.AttemptExternal {
		return OfExecutor
	}
	return OfProcess
}

// Sender says who sent the newest attempt of the trace's call, from the view of a writer. A
// call that a peer appended raw has this process or an executor as its sender as soon as one of
// them has marked an attempt of its own.
func Sender(t *chain.Trace, writer string) Origin {
	if t == nil || t.Call == nil {
		return OfNobody
	}
	sender := OfProcess
	if who := appenderOf(t, tga.CallType); who != "" {
		sender = rawOrigin(who, writer)
	}
	if t.Call.Meta.String(tga.MetaAttempt) == tga.AttemptExternal {
		sender = OfExecutor
	}
	for i := range t.Notes {
		if t.Notes[i].Kind != tga.NoteAttempt {
			continue
		}
		sender = OfProcess
		if m, err := ledger.ParseMark(t.Notes[i].Body); err == nil && !m.Permit.IsZero() {
			sender = OfExecutor
		}
	}
	return sender
}

// OwnTrace reports whether the next step of a trace belongs to a peer that logs its calls
// itself: the peer made the request and nobody else has sent the call, or the trace is empty.
// For any other trace, the lease of a peer is no sign that somebody executes the call.
func OwnTrace(t *chain.Trace, peer string) bool {
	switch {
	case len(t.Entries) == 0:
		return true
	case t.Head.State.Terminal():
		return false
	case t.Call != nil:
		return Sender(t, peer) == OfWriter
	}
	return RequestOrigin(t, peer) == OfWriter
}

// EndedBy returns by what right the trace's effect was written, and who wrote it, if the log
// says so. ok is false if there is no effect.
func EndedBy(t *chain.Trace) (by Writer, who string, ok bool) {
	if t.Effect == nil {
		return 0, "", false
	}
	if who := appenderOf(t, tga.EffectType); who != "" {
		return ByPeer, who, true
	}
	switch t.Effect.Meta.String(tga.MetaResolvedBy) {
	case resolvedByPerson:
		return ByPerson, t.Effect.Meta.String(tga.MetaResolver), true
	case resolvedByProbe:
		return ByProbe, "", true
	}
	if who := t.Effect.Meta.String(tga.MetaFinishedBy); who != "" || Sender(t, "") == OfExecutor {
		return ByPermit, who, true // without a name: the executor took the attempt back (not_sent)
	}
	return ByProcess, "", true
}

// Values of meta.resolved_by.
const (
	resolvedByPerson = "person"
	resolvedByProbe  = "probe"
)
