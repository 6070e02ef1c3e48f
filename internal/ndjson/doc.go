// Package ndjson is the export format: a trace as lines of JSON that any tool can read
// and anyone can check.
//
// # Format
//
// One JSON object a line, each with the member kind. A trace is its entries in order,
// each followed by its artifact and then its documents, then its notes, then a head. An
// export is its traces, then an end:
//
//	{"kind":"entry","committed":TS,"epoch":"N","entry":ENTRY}
//	{"kind":"artifact","seq":N,"artifact":ARTIFACT}      or  "erased":true for the bytes
//	{"kind":"document","seq":N,"pointer":P,"json":VALUE} or  "base64":"…", or "erased":true
//	{"kind":"note","note":NOTE}
//	{"kind":"head","trace_id":ID,"entries":N,"notes":N,"state":STATE,
//	 "head_digest":DIGEST,"note_digest":DIGEST}
//	{"kind":"end","traces":N}
//
// ENTRY, ARTIFACT and NOTE are the contract's objects in canonical form (RFC 8785),
// spliced in as they are stored. A document is under "json" if its bytes are the canonical
// form of a JSON value, so that no reader can lose a byte, and otherwise under "base64"
// (RFC 4648 §4, padded). An erased artifact has no document lines. epoch is a string because
// it has 64 bits. A trace without notes has 64 zeros as note_digest.
//
// Exports can be concatenated, and each trace is verified by itself. The end line says how
// many traces come before it, since the end line before or the start of the file. So a file
// that was cut can be told from a whole one, even if it was cut between two traces. The only
// exception: concatenated exports that were cut exactly after an end line. committed and
// epoch are the store's own record, and no digest covers them.
//
// # Invariants
//
//	whole    a trace without its head, an export without its    [Verify]  TestEveryTruncationIsDetected
//	         end, or with another number of traces, is an error           TestEndCountsTheTraces
//	chained  every digest and link is recomputed                [Verify]  TestEveryFlipIsDetected
//	closed   an unknown, missing or repeated member is an error [Verify]  TestBadLinesAreRefused
//	bounded  memory for one trace is enough                     [MaxLine] TestLimitsOfALine
package ndjson
