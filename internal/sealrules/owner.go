package sealrules

import (
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Owner has the key under which a value that belongs to no trace is sealed. It is a stream, a family of working
// states, or a set of values that is erased together ([chain.Attachment.Owner]).
type Owner struct {
	Kind keyspace.Kind
	ID   []byte
	Kept bool // it has many streams, so its keys are stored separately
}

// OwnerOf returns the owner of an attachment that belongs to no trace. Its ID is nil if the attachment is not sealed.
func OwnerOf(a *chain.Attachment) Owner {
	o := Owner{Kind: keyspace.Kind(a.Kind)}
	if o.ID = keyspace.Owned(o.Kind, a.Key); o.ID != nil && !a.Owner.IsZero() {
		o = Owner{keyspace.Stream, a.Owner[:], true}
	}
	return o
}

// Name returns a name that is unique to the owner.
func (o Owner) Name() string { return string(byte(o.Kind)) + string(o.ID) }

// OwnersOf returns the owners that the values of a stream, or of a family of working states with that id, may have.
func OwnersOf(id tga.ID) []Owner {
	return []Owner{{Kind: keyspace.Stream, ID: id[:]}, {Kind: keyspace.Blob, ID: keyspace.NodePrefix(id)}}
}

// Unread returns what a reader gets for a value whose key was destroyed: nil, but an empty value for an item of a
// stream, so that no caller begins an erased stream again.
func Unread(kind chain.AttachmentKind) []byte {
	if kind == chain.AttachStream {
		return []byte{}
	}
	return nil
}
