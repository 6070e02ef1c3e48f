package chain

import "github.com/tgad/tgad/schemas/tga"

// Keyring holds, outside of the store, the data keys of a store that seals the content of its
// entries. Its methods may be called concurrently. Their errors have a code: STORE_UNAVAILABLE if
// the ring cannot be reached.
type Keyring interface {
	Keys
	// ID names the ring for good. A store is sealed under one ring.
	ID() tga.ID
	// Key returns the key of a new trace: the key of the subject whose call it is, or a key of
	// its own, as the ring's owner configured. Subject is "" if the request names none. The key
	// is durable when Key returns. Key never returns a destroyed or a retired key.
	Key(namespace, subject string) (KeyID, error)
	// Shared reports whether more than one trace may use a key.
	Shared(key KeyID) (bool, error)
	// Retire retires and returns the keys of a subject that are not destroyed: Key never returns
	// them again.
	Retire(namespace, subject string) ([]KeyID, error)
	// Destroy destroys a key for good. Destroying a destroyed key is no error.
	Destroy(key KeyID) error
	// RequestDigest turns the digest of a request into another one, with a secret of the ring.
	RequestDigest(plain tga.Digest) tga.Digest
}
