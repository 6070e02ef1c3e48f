package sealrules

import (
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// OfStream says whether a stream was erased before. items is the number of its items, keys are the keys under which they are
// sealed. NOT_FOUND: the stream never existed.
func OfStream(name string, items int, keys []chain.KeyID) (already bool, err error) {
	if items == 0 && len(keys) == 0 {
		return false, nothing(name)
	}
	return len(keys) == 0, nil
}

// OfState says whether a state was erased before. head is its head, rows is the number of its other rows, and sealed says
// whether anything was ever sealed for it. NOT_FOUND: nothing was ever written to it.
func OfState(name string, head []byte, rows int, sealed bool) (already bool, err error) {
	was, err := chain.ReadStateErasure(head)
	if err != nil || rows > 0 || sealed {
		return false, err
	}
	if head == nil {
		return false, nothing(name)
	}
	return was != nil, nil
}

func nothing(name string) error {
	return tga.Errorf(tga.NotFound, "erase %s: there is nothing", name)
}
