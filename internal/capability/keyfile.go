package capability

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/schemas/tga"
)

// MaxKeys is how many keys a file may hold. No key is dropped to make room, because an
// auditor may still need it.
const MaxKeys = 1000

// maxKeyFile is the most bytes of a key file that are read; MaxKeys keys need a fifth of that.
const maxKeyFile = 1 << 20

const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
	untilHeader  = "Until"
)

// keyID is the first 16 hex digits of the SHA-256 of the 32 public bytes.
func keyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

func badFile(path, format string, args ...any) *tga.Error {
	return tga.Errorf(tga.ValidationError, "key file "+path+": "+format, args...)
}

func noFile(path string, err error) *tga.Error {
	return tga.Errorf(tga.StoreUnavailable, "key file %s: %w", path, err)
}

// outside refuses a key file in or under the store's directory. Directories are
// compared as the system sees them, so no symlink or mount hides one in the other.
func outside(path, store string) error {
	if store == "" {
		return nil
	}
	root, err := os.Stat(store)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing can be inside it
	}
	if err != nil {
		return noFile(path, err)
	}
	for _, p := range [...]string{path, filepath.Dir(path)} {
		dir, err := filepath.EvalSymlinks(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the file does not exist yet, or its directory is missing: opening it reports that
		}
		if err == nil {
			dir, err = filepath.Abs(dir)
		}
		if err != nil {
			return noFile(path, err)
		}
		for ; ; dir = filepath.Dir(dir) {
			info, err := os.Stat(dir)
			if err != nil {
				return noFile(path, err)
			}
			if os.SameFile(info, root) {
				return badFile(path, "is inside the store %s: a backup would carry the key", store)
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return nil
}

// openKeys reads the file, or makes it where there is none.
func openKeys(path string, random io.Reader) (keySet, error) {
	keys, err := readKeys(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return keys, err
	}
	err = locked(path, func() error {
		// Another process may have made the file meanwhile. Then use its key.
		if keys, err = readKeys(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if keys, err = newKey(random); err != nil {
			return err
		}
		return writeKeys(path, keys)
	})
	return keys, err
}

// rotateKeys makes a new active key. It starts from what the file holds, which another
// process may have rotated.
func rotateKeys(path string, until int64, random io.Reader) (next keySet, err error) {
	err = locked(path, func() error {
		keys, err := readKeys(path)
		if err != nil {
			return err
		}
		if n := len(keys.earlier) + 1; n >= MaxKeys {
			return tga.Errorf(tga.LimitExceeded, "key file %s holds %d keys, at most %d", path, n, MaxKeys)
		}
		if next, err = newKey(random); err != nil {
			return err
		}
		keys.active.until = until
		next.earlier = keys.public()
		return writeKeys(path, next)
	})
	return next, err
}

func newKey(random io.Reader) (keySet, error) {
	// Read the seed here, because ed25519.GenerateKey may ignore random.
	var seed [ed25519.SeedSize]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return keySet{}, tga.Errorf(tga.StoreUnavailable, "make a key: no randomness: %w", err)
	}
	return keySetOf(ed25519.NewKeyFromSeed(seed[:])), nil
}

func keySetOf(private ed25519.PrivateKey) keySet {
	public := private.Public().(ed25519.PublicKey)
	return keySet{private: private, active: publicKey{id: keyID(public), key: public}}
}

// readKeys reads a key file. It refuses a file that others than its owner can access, or
// that contains anything but keys.
func readKeys(path string) (keys keySet, err error) {
	// Check this before opening it: opening a pipe waits for its writer.
	if info, err := os.Stat(path); err != nil {
		return keySet{}, noFile(path, err)
	} else if !info.Mode().IsRegular() {
		return keySet{}, badFile(path, "is no regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return keySet{}, noFile(path, err)
	}
	defer func() {
		if e := f.Close(); e != nil && err == nil {
			err = noFile(path, e)
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return keySet{}, noFile(path, err)
	}
	if err := private(path, info); err != nil {
		return keySet{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return keySet{}, noFile(path, err)
	}
	if len(data) > maxKeyFile {
		return keySet{}, badFile(path, "is over %d bytes", maxKeyFile)
	}
	return decodeKeys(path, data)
}

func decodeKeys(path string, data []byte) (keySet, error) {
	var keys keySet
	seen := map[string]bool{}
	for rest := data; len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return keySet{}, badFile(path, "holds what is no PEM block")
		}
		var key publicKey
		switch first := keys.private == nil; {
		case first && block.Type == privateBlock:
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return keySet{}, badFile(path, "active key: %w", err)
			}
			private, ok := parsed.(ed25519.PrivateKey)
			if !ok {
				return keySet{}, badFile(path, "active key is a %T, want Ed25519", parsed)
			}
			keys = keySetOf(private)
			key = keys.active
		case !first && block.Type == publicBlock:
			parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
			if err != nil {
				return keySet{}, badFile(path, "earlier key %d: %w", len(keys.earlier)+1, err)
			}
			public, ok := parsed.(ed25519.PublicKey)
			if !ok {
				return keySet{}, badFile(path, "earlier key %d is a %T, want Ed25519", len(keys.earlier)+1, parsed)
			}
			until, err := tga.ParseMillis(block.Headers[untilHeader])
			if err != nil || until <= 0 {
				return keySet{}, badFile(path, "earlier key %d: header %s is %.40q, want a time", len(keys.earlier)+1, untilHeader, block.Headers[untilHeader])
			}
			key = publicKey{id: keyID(public), key: public, until: until.Time().Unix()}
			keys.earlier = append(keys.earlier, key)
		default:
			return keySet{}, badFile(path, "block %.40q: want one %s, then any %s", block.Type, privateBlock, publicBlock)
		}
		if seen[key.id] {
			return keySet{}, badFile(path, "key %s stands there twice", key.id)
		}
		seen[key.id] = true
	}
	if keys.private == nil {
		return keySet{}, badFile(path, "holds no key")
	}
	if len(seen) > MaxKeys {
		return keySet{}, badFile(path, "holds %d keys, at most %d", len(seen), MaxKeys)
	}
	// pem.Decode skips what it cannot read, so a key in a damaged block would be lost
	// silently. Therefore the keys that were read, encoded again, must give the file.
	again, err := encodeKeys(keys)
	if err != nil {
		return keySet{}, err
	}
	if !bytes.Equal(bytes.TrimSpace(data), bytes.TrimSpace(again)) {
		return keySet{}, badFile(path, "holds more than its %d keys, or one that is damaged", len(seen))
	}
	return keys, nil
}

func encodeKeys(keys keySet) ([]byte, error) {
	var out bytes.Buffer
	fail := func(err error) ([]byte, error) {
		return nil, tga.Errorf(tga.ValidationError, "encode a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(keys.private)
	if err != nil {
		return fail(err)
	}
	if err := pem.Encode(&out, &pem.Block{Type: privateBlock, Bytes: der}); err != nil {
		return fail(err)
	}
	for _, k := range keys.earlier {
		if der, err = x509.MarshalPKIXPublicKey(k.key); err != nil {
			return fail(err)
		}
		until := map[string]string{untilHeader: tga.Millis(k.until * 1000).String()}
		if err := pem.Encode(&out, &pem.Block{Type: publicBlock, Headers: until, Bytes: der}); err != nil {
			return fail(err)
		}
	}
	return out.Bytes(), nil
}

// writeKeys gives path new content, durably, or leaves its old content: it writes and syncs
// the whole file under another name, and then renames it.
func writeKeys(path string, keys keySet) (err error) {
	data, err := encodeKeys(keys)
	if err != nil {
		return err
	}
	temp := path + ".new"
	// A file that a crash left here was never renamed, so nobody uses it.
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return noFile(path, err)
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return noFile(path, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return noFile(path, errors.Join(err, os.Remove(temp)))
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return noFile(path, err)
	}
	return nil
}
