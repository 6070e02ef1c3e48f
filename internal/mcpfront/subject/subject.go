package subject

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/listen"
	"github.com/tgad/tgad/schemas/tga"
)

// With --forward-auth the shim serves several users of one tool server. It passes each user's
// Authorization header on and keeps the users apart by it. It trusts no claim in the header,
// because only the tool server can check a token. Anybody can write any `sub` into an unchecked
// token, and the shim would serve the recorded answer of another user's call to the forger before
// the tool server has seen the token. So the subject of a call is a digest of the whole header:
// only a client with a user's token has that user's subject.
//
// The price is that a new token is a new subject. If a call ended in doubt under the old token, its
// repeat without a key is not recognised, and its repeat with a key is refused.
//
// The digest is keyed with a secret of this state directory, because "Basic" credentials can be
// guessed: somebody with a copy of the log but not the secret cannot test guesses.

const subjectKeyFile, subjectKeySize = "subject.key", 32

// Secret derives the subjects of a shim's users.
type Secret struct{ key []byte }

// ReadSecret reads the secret of a state directory, or makes it. Shims that share the directory
// share the secret, and so recognise each other's users.
func ReadSecret(state string) (*Secret, error) {
	path := filepath.Join(state, subjectKeyFile)
	key, err := access.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeSubjectKey(state, path); err == nil {
			key, err = access.ReadFile(path)
		}
	}
	if err == nil && len(key) != subjectKeySize {
		err = tga.Errorf(tga.StateChecksumMismatch, "it has %d bytes, want %d: remove it to have it made again", len(key), subjectKeySize)
	}
	if err != nil {
		return nil, tga.Errorf(codeOf(err), "the secret of subjects in %s: %w", path, err)
	}
	return &Secret{key}, nil
}

// makeSubjectKey writes the file under another name first and then links it. So if two shims start
// at once, neither reads half a file, and the second uses the file of the first.
func makeSubjectKey(state, path string) error {
	key := make([]byte, subjectKeySize)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	own := filepath.Join(state, subjectKeyFile+"."+rand.Text())
	f, err := access.Create(own)
	if err != nil {
		return err
	}
	_, err = f.Write(key)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		if err = os.Link(own, path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(own))
}

// codeOf is the code of an error, STORE_UNAVAILABLE if it has none.
func codeOf(err error) tga.Code {
	if code := tga.CodeOf(err); code != "" {
		return code
	}
	return tga.StoreUnavailable
}

// Of is the subject of a client that sends this Authorization header, "" for an empty header.
func (s *Secret) Of(header string) string {
	if s == nil || header == "" {
		return ""
	}
	return s.Seal("subject", header)
}

// Seal is a digest of a text that only a holder of the secret can make. It differs for each purpose.
func (s *Secret) Seal(purpose, text string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte("tgad " + purpose + " v1\x00" + text))
	return hex.EncodeToString(mac.Sum(nil))
}

// Fresh makes a new secret that is not stored.
func Fresh() *Secret { return &Secret{[]byte(rand.Text() + rand.Text())} }

// Forwardable refuses to forward credentials over a connection on which they could be read, or if the
// configured headers have an Authorization too.
func Forwardable(endpoint string, headers map[string]string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return tga.Errorf(tga.ValidationError, "forwarding Authorization wants a tool server at a URL")
	}
	if u.Scheme != "https" && !listen.Loopback(u.Host) {
		return tga.Errorf(tga.ValidationError, "forwarding Authorization to %s would send it readable over the network: want https", u.Redacted())
	}
	if headers["Authorization"] != "" {
		return tga.Errorf(tga.ValidationError, "the headers file has an Authorization, and the clients' is forwarded: choose one")
	}
	return nil
}
