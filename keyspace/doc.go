// Package keyspace is the codec of the store's keys.
//
// A key is one kind byte followed by fields of fixed width, integers big-endian. So the
// bytewise order of keys is the order of the tuples they encode, and a range of one id's
// keys never includes a key of another id, whatever the bytes of the ids.
//
//	kind  fields                         width  value
//	'a'   trace[16]                      17     pending approval
//	'b'   trace[16] seq[8] chunk[2]      27     64 KiB piece of an entry's spilled parts
//	'c'   trace[16] seq[8]               25     checkpoint
//	'e'   trace[16] seq[8]               25     entry frame
//	'g'   index[8]                        9     global order, one per batch
//	'i'   digest[32]                     33     trace of a begin id
//	'l'   digest[32]                     33     ledger record
//	'm'   name, 1..64 of [a-z0-9_.-]    2-65    store metadata
//	'n'   trace[16] number[4]            21     note frame
//	'o'   trace[16]                      17     open trace
//	'q'   due[8] trace[16]               25     timer
//	'r'   trace[16]                      17     tombstone of an archived trace
//	's'   number[8]                       9     sealed segment
//	't'   stream[16] seq[8]              25     stream attachment
//	'w'   digest[16] trace[16]           33     evidence of a trace
//	      owner[8] digest[24]                   node of a working state
//
// The only field of variable width, name, is last in its key. Trace and stream are UUIDv7.
// The numbers of entries (also in the keys of their chunks) and notes start at 1. A key with
// number 0 is invalid.
//
// # Invariants
//
//	order      bytes.Compare of keys = compare of tuples    append functions   TestByteOrderIsTupleOrder
//	isolation  bounds of an id hold its keys and no other   bounds functions   TestBoundsHoldExactlyTheirKeys
//	strict     what parses is what append writes            parse functions    FuzzParseKey
//
// A key that does not parse was damaged or written by another program, so parse errors are
// STATE_CHECKSUM_MISMATCH with Where "stored".
package keyspace
