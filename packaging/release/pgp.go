package main

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/binary"
	"io"
	"math/bits"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const pgpKeyName = "release.asc"

// pgpBorn is the time at which the key was made, as OpenPGP has it: a part of the fingerprint. It is the same for
// every release, so that who has imported the key once knows the next release by it.
var pgpBorn = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// pgp is the key that signs a release, as rpm knows keys: OpenPGP's EdDSA of RFC 4880bis, which RFC 9580 calls
// EdDSALegacy. rpm 4 does not know the Ed25519 of RFC 9580.
type pgp struct {
	entity *openpgp.Entity
	when   time.Time // of the signatures: what is made of one commit has the same bytes
}

func pgpOf(key ed25519.PrivateKey, when time.Time) (*pgp, error) {
	var b bytes.Buffer
	b.WriteByte(4)
	if err := binary.Write(&b, binary.BigEndian, uint32(pgpBorn.Unix())); err != nil {
		return nil, err
	}
	b.WriteByte(byte(packet.PubKeyAlgoEdDSA))
	b.Write([]byte{9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01}) // the curve, 1.3.6.1.4.1.11591.15.1
	writeInteger(&b, append([]byte{0x40}, key.Public().(ed25519.PublicKey)...))
	b.WriteByte(0) // what follows is not encrypted
	at := b.Len()
	writeInteger(&b, key.Seed())
	var sum uint16
	for _, c := range b.Bytes()[at:] {
		sum += uint16(c)
	}
	if err := binary.Write(&b, binary.BigEndian, sum); err != nil {
		return nil, err
	}
	const secretKey = 0xc5 // tag 5, with the length in one byte
	read, err := packet.Read(io.MultiReader(bytes.NewReader([]byte{secretKey, byte(b.Len())}), &b))
	if err != nil {
		return nil, err
	}
	private := read.(*packet.PrivateKey)
	e := &openpgp.Entity{PrimaryKey: &private.PublicKey, PrivateKey: private, Identities: map[string]*openpgp.Identity{}}
	born := &pgp{entity: e, when: pgpBorn}
	return &pgp{entity: e, when: when}, e.AddUserId("The tgad authors", "", "tgad@users.noreply.github.com", born.config())
}

// writeInteger writes a number as OpenPGP does: its length in bits, and its bytes without zeros before them.
func writeInteger(b *bytes.Buffer, number []byte) {
	number = bytes.TrimLeft(number, "\x00")
	length := 0
	if len(number) > 0 {
		length = 8*(len(number)-1) + bits.Len8(number[0])
	}
	b.Write([]byte{byte(length >> 8), byte(length)})
	b.Write(number)
}

func (p *pgp) config() *packet.Config {
	salted := false
	return &packet.Config{DefaultHash: crypto.SHA256, Time: func() time.Time { return p.when }, NonDeterministicSignaturesViaNotation: &salted}
}

// sign is the signature that a package carries.
func (p *pgp) sign(of io.Reader) ([]byte, error) {
	var b bytes.Buffer
	err := openpgp.DetachSign(&b, p.entity, of, p.config())
	return b.Bytes(), err
}

// public is the key as `rpm --import` takes it.
func (p *pgp) public() ([]byte, error) {
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err != nil {
		return nil, err
	}
	if err := p.entity.Serialize(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
