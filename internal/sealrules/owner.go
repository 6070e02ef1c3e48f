package sealrules

import (
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Owner is whose key a value of no trace is sealed under: that of a stream, of a family of working states, or of
// all that is to be erased together ([chain.Attachment.Owner]).
type Owner struct {
	Kind keyspace.Kind
	ID   []byte
	Kept bool // it has many streams, so its keys are remembered
}

// OwnerOf returns whose key an attachment of no trace is sealed under; its ID is nil where it is not sealed.
func OwnerOf(a *chain.Attachment) Owner {
	o := Owner{Kind: keyspace.Kind(a.Kind)}
	if o.ID = keyspace.Owned(o.Kind, a.Key); o.ID != nil && !a.Owner.IsZero() {
		o = Owner{keyspace.Stream, a.Owner[:], true}
	}
	return o
}

// Name tells an owner from all others.
func (o Owner) Name() string { return string(byte(o.Kind)) + string(o.ID) }

// OwnersOf returns the owners that the values of a stream, or of a family of working states with that id, may have.
func OwnersOf(id tga.ID) []Owner {
	return []Owner{{Kind: keyspace.Stream, ID: id[:]}, {Kind: keyspace.Blob, ID: keyspace.NodePrefix(id)}}
}

// Unread is what is read of a value whose key was destroyed: it is not there; but an item of a stream is there, without
// a byte, so that nobody begins again what is erased.
func Unread(kind chain.AttachmentKind) []byte {
	if kind == chain.AttachStream {
		return []byte{}
	}
	return nil
}
