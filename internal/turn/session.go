package turn

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A session is the stream of an agent's turns in one conversation: item n names turn n. An item
// is written when its turn begins, and again when the turn ends.

// sessionItem is one turn of a session.
type sessionItem struct {
	Version       int    `json:"version"`
	InteractionID tga.ID `json:"interaction_id"`
	// TokensBefore counts the tokens of the session's turns that had ended when this turn began, if
	// the agent has a limit of tokens. Tokens counts this turn's own.
	TokensBefore int64 `json:"tokens_before"`
	Tokens       int64 `json:"tokens"`
	Ended        bool  `json:"ended"`
	Failed       bool  `json:"failed"`
}

// session is a conversation of one agent, under the lease of its stream.
type session struct {
	stream tga.ID
	lease  chain.Lease
	last   uint32 // number of the newest turn
	tokens int64  // of the turns that have ended, if the agent has a limit of tokens
}

func sessionStream(agent, id string) tga.ID { return keyspace.TurnStream("session", agent, id) }

// enter takes the session's lease, which the caller holds for one append. The lease only
// serializes the numbering of the session's turns.
func enter(ctx context.Context, store runtime.Store, a *Agent, id string) (*session, error) {
	s := &session{stream: sessionStream(a.Name, id)}
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var err error
	if s.lease, err = store.Acquire(wait, s.stream); err != nil {
		return nil, err
	}
	if s.last, err = newest(ctx, store, s.stream); err == nil && a.Constraints.MaxTokens > 0 {
		s.tokens, err = used(ctx, store, s.stream)
	}
	if err != nil {
		store.Release(s.lease)
		return nil, err
	}
	return s, nil
}

// used sums the tokens of a session's turns that have ended. It reads all of them: turns may
// overlap, so no turn's own count of those before it is complete.
func used(ctx context.Context, store runtime.AttachmentReader, stream tga.ID) (tokens int64, err error) {
	for a, err := range store.Attachments(ctx, chain.AttachStream, keyspace.StreamPrefix(stream)) {
		if err != nil {
			return 0, err
		}
		_, n, err := keyspace.ParseStream(a.Key)
		if err != nil {
			return 0, err
		}
		it, err := itemFrom(stream, n, a.Value)
		if err != nil {
			return 0, err
		}
		if it.Ended {
			tokens += it.Tokens
		}
	}
	return tokens, nil
}

// itemOf returns the attachment that stores a session item.
func itemOf(stream tga.ID, number uint32, it sessionItem) chain.Attachment {
	it.Version = tga.SessionVersion
	value, err := json.Marshal(it)
	if err != nil {
		panic(err) // numbers and an id always have a JSON form
	}
	return chain.Attachment{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, uint64(number)), Value: value}
}

// backwards yields the items of a session, newest first. The store only reads forwards, so
// backwards first finds the newest item by doubling.
func backwards(ctx context.Context, store runtime.Store, stream tga.ID, failed *error) func(yield func(uint32, sessionItem) bool) {
	return func(yield func(uint32, sessionItem) bool) {
		last, err := newest(ctx, store, stream)
		for n := last; err == nil && n > 0; n-- {
			var it *sessionItem
			if it, err = readItem(ctx, store, stream, n); err == nil && !yield(n, *it) {
				return
			}
		}
		*failed = err
	}
}

// newest returns the number of the newest turn of a session, 0 for none. The numbers have no gap,
// so the first missing number marks the end.
func newest(ctx context.Context, store runtime.AttachmentReader, stream tga.ID) (uint32, error) {
	there := func(n uint32) (bool, error) {
		raw, err := store.Attachment(ctx, chain.AttachStream, keyspace.StreamKey(stream, uint64(n)))
		return raw != nil, err
	}
	low, high := uint32(0), uint32(1) // low exists or is 0; after the first loop high does not exist
	for {
		ok, err := there(high)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		low, high = high, high*2
	}
	for high-low > 1 {
		mid := low + (high-low)/2
		ok, err := there(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			low = mid
		} else {
			high = mid
		}
	}
	return low, nil
}

func readItem(ctx context.Context, store runtime.AttachmentReader, stream tga.ID, n uint32) (*sessionItem, error) {
	raw, err := store.Attachment(ctx, chain.AttachStream, keyspace.StreamKey(stream, uint64(n)))
	if err != nil {
		return nil, err
	}
	return itemFrom(stream, uint64(n), raw)
}

func itemFrom(stream tga.ID, n uint64, raw []byte) (*sessionItem, error) {
	var it sessionItem
	if err := json.Unmarshal(raw, &it); err != nil {
		return nil, tga.Errorf(tga.StateChecksumMismatch, "turn %d of session stream %s: %w", n, stream, err)
	}
	if it.Version != tga.SessionVersion {
		return nil, tga.Errorf(tga.FormatTooNew, "turn %d of session stream %s has version %d, this program reads %d", n, stream, it.Version, tga.SessionVersion)
	}
	return &it, nil
}

func opened(id tga.ID) chain.Attachment {
	return chain.Attachment{Kind: chain.AttachStream, Key: keyspace.OpenTurnKey(id), Value: id[:]}
}

func closed(id tga.ID) chain.Attachment {
	return chain.Attachment{Kind: chain.AttachStream, Key: keyspace.OpenTurnKey(id)}
}

// openTurns returns the ids of the turns that have not ended, oldest first.
func openTurns(ctx context.Context, store runtime.AttachmentReader) ([]tga.ID, error) {
	var ids []tga.ID
	for a, err := range store.Attachments(ctx, chain.AttachStream, keyspace.StreamPrefix(keyspace.OpenTurns())) {
		if err != nil {
			return nil, err
		}
		if len(a.Value) != len(tga.ID{}) {
			return nil, tga.Errorf(tga.StateChecksumMismatch, "the index of open turns has a value of %d bytes", len(a.Value))
		}
		ids = append(ids, tga.ID(a.Value))
	}
	sortIDs(ids)
	return ids, nil
}
