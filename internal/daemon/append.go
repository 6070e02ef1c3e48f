package daemon

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// submitting is a request to append artifacts that the peer made itself, under a lease that it holds.
type submitting struct{ *request }

// appendOne appends artifacts to a trace under a lease that the peer took.
//
// It uses the log without the runtime: the peer sends its calls itself, and appends the calls
// and their effects as docs/PROTOCOL.md says.
func (q submitting) appendOne() (any, error) {
	var m wire.AppendRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	id, err := q.traceID()
	if err != nil {
		return nil, err
	}
	ticket, err := q.submit(id, m, "")
	if err != nil {
		return nil, err
	}
	return appended(ticket)
}

// appendMany makes the appends of a batch in their order. Each is made or refused by itself. All
// are submitted before appendMany waits for the first, so that they share syncs.
func (q submitting) appendMany() (any, error) {
	var m wire.BatchRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	if err := count("a batch of %d appends", len(m.Items), q.d.conf().Limits.BatchItems); err != nil {
		return nil, err.At("/items")
	}
	answers := wire.BatchAnswers{Items: make([]wire.BatchAnswer, len(m.Items))}
	tickets := make([]Submitted, len(m.Items))
	refuse := func(i int, err error) {
		if errors.Is(err, tga.StoreUnavailable) {
			q.d.suspect()
		}
		p := problemOf(err)
		answers.Items[i].Problem = &p
	}
	for i, item := range m.Items {
		// The checks of an append read the durable trace. So submit waits for earlier items of
		// the same trace, and for no others.
		var err error
		if tickets[i], err = q.submit(item.TraceID, item.AppendRequest, fmt.Sprintf("/items/%d", i)); err != nil {
			refuse(i, err)
		}
	}
	for i := range answers.Items {
		if answers.Items[i].Problem != nil {
			continue // it was not submitted
		}
		done, err := appended(tickets[i])
		if err != nil {
			refuse(i, err)
			continue
		}
		answers.Items[i].Appended = done
	}
	return answers, nil
}

// submit submits one append and does not wait for it; at is its JSON pointer in the body.
func (q submitting) submit(id tga.ID, m wire.AppendRequest, at string) (Submitted, error) {
	if len(m.Artifacts) == 0 {
		return nil, tga.Errorf(tga.ValidationError, "an append without artifacts").At(at + "/artifacts").In(id)
	}
	batch := chain.Batch{Artifacts: make([]chain.NewArtifact, len(m.Artifacts))}
	if m.Expect != nil {
		batch.Expect = &chain.Head{Seq: m.Expect.Seq, Digest: m.Expect.Digest}
	}
	for i := range m.Artifacts {
		a, err := q.artifact(&m.Artifacts[i], fmt.Sprintf("%s/artifacts/%d", at, i))
		if err != nil {
			return nil, err
		}
		batch.Artifacts[i] = a
	}
	return q.appendRaw(id, m.Lease, batch, at)
}

// appended waits for an append and returns the head of its trace after it.
func appended(ticket Submitted) (*wire.Appended, error) {
	done, err := ticket.Wait()
	if err != nil {
		return nil, err
	}
	answer := &wire.Appended{
		Head:     wire.Head{Seq: done.Head.Seq, Digest: done.Head.Digest, State: done.Head.State.String()},
		Entries:  []json.RawMessage{},
		Replayed: done.Replayed,
	}
	for i := range done.Entries {
		answer.Entries = append(answer.Entries, done.Entries[i].AppendCanonical(nil))
	}
	return answer, nil
}

// artifact decodes one artifact with its entry and its documents.
func (q submitting) artifact(m *wire.NewArtifact, at string) (chain.NewArtifact, error) {
	var a chain.NewArtifact
	var err error
	// The limit is one of the canonical form. The limit of the request bounds the text.
	limits := q.d.conf().JSONLimits()
	most := limits.MaxBytes
	limits.MaxBytes = max(most, len(m.Artifact))
	if a.Artifact, err = tga.DecodeArtifact(m.Artifact, limits); err != nil {
		return a, under(at+"/artifact", err)
	}
	if a.Artifact.Type == tga.CallType {
		most += callRoom
	}
	if n := len(a.Artifact.Canonical); n > most {
		return a, tga.Errorf(tga.LimitExceeded, "the artifact has %d bytes in canonical form: the limit is %d", n, most).At(at + "/artifact")
	}
	if m.Entry != nil {
		if a.Entry, err = tga.DecodeLogEntry(m.Entry); err != nil {
			return a, under(at+"/entry", err)
		}
	}
	for i, d := range m.Documents {
		place := fmt.Sprintf("%s/documents/%d/data", at, i)
		data, err := oneOf(place, d.Data, d.DataBase64)
		if err != nil {
			return a, err
		}
		a.Documents = append(a.Documents, chain.Document{Pointer: d.Pointer, Data: data})
	}
	return a, nil
}

// under prefixes the pointer of an error with that of the part that the error is about.
func under(at string, err error) error {
	var e *tga.Error
	if errors.As(err, &e) {
		e.Pointer = at + e.Pointer
	}
	return err
}

// callRoom is how many bytes a call may have over the limit of an artifact. It repeats its request, which may have as many as the
// limit says, and has some hundred more: otherwise a peer could not make the call of a request that the daemon has taken.
const callRoom = 1 << 10
