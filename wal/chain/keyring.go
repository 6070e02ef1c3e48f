package chain

import "github.com/tgad/tgad/schemas/tga"

// Keyring has the data keys of a store that seals what its entries carry, outside of the store.
// Its methods may be called concurrently, and their errors have a code; STORE_UNAVAILABLE where
// the ring cannot be asked.
type Keyring interface {
	Keys
	// ID names the ring for good. A store is sealed under one ring.
	ID() tga.ID
	// Key returns the key of a new trace: that of the subject whose call it is, or one that no
	// other trace has, as the ring's owner decided. Subject is "" where the request names none.
	// The key is durable. A destroyed key is not returned, and not one that is retired.
	Key(namespace, subject string) (KeyID, error)
	// Shared reports whether a key may be that of more than one trace.
	Shared(key KeyID) (bool, error)
	// Retire returns the keys of a subject that are not destroyed. Key returns none of them any
	// more.
	Retire(namespace, subject string) ([]KeyID, error)
	// Destroy destroys a key for good; a destroyed one may be destroyed again.
	Destroy(key KeyID) error
	// RequestDigest turns the digest of a request into another one, by a secret of the ring.
	RequestDigest(plain tga.Digest) tga.Digest
}
