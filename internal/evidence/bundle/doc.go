// Package bundle writes and verifies the evidence file for an auditor. The file has traces, the
// leaves of their appends, the proof of each leaf, and the signed checkpoint that the proofs lead to.
// The auditor checks it offline, with the file and the public key of the store alone.
//
// # Format
//
// One JSON object a line, in one spelling. Lines about the tree come first, then an export of
// the traces as package ndjson writes it, which [ndjson.Verify] also reads by itself:
//
//	{"kind":"evidence","version":"1","about":[…],"origin":O,"key":K,"from":N,"to":N,"leaves":N,"traces":N}
//	{"kind":"hand_over","note":NOTE}                       0 or more, oldest first
//	{"kind":"checkpoint","note":NOTE}
//	{"kind":"prefix","size":N,"head":H,"proof":[H,…]}      0 or 1
//	{"kind":"leaf","index":N,"leaf":BASE64,"proof":[H,…]}  in the order of the index
//	… lines of an export, with its end
//
// NOTE is a signed note (C2SP). K is the public key that signed first, H a hash in base64.
// about is for people; programs ignore it. from and to are the first and the last index of a
// range of which the file has every leaf; both are 0 if the file has chosen traces.
// prefix proves that the checkpoint's tree grew from an older one. The same store, traces and
// checkpoint give the same bytes.
//
// # What a good bundle proves
//
//	of its traces   every entry, artifact, document and note is what it was when the checkpoint
//	                was signed, and none is missing up to the newest leaf of the trace in the file
//	of its range    no append between from and to is missing, of any trace
//	not             that a trace has no later append, unless to is the size of the checkpoint;
//	                that what the tools said is true; that the key belongs to whom you think
//
// # Invariants
//
//	whole      a change of any byte that a program reads is an error       [Verify] TestEveryFlipIsFound
//	complete   an entry, note or leaf that is left out is an error         [Verify] TestWhatIsLeftOutIsMissed
//	honest     the report names what was not covered or not checked        [Report] TestReportSaysWhatWasNotChecked
//	same       the store and the checkpoint determine every byte           [Write]  TestBytesAreTheSame
package bundle
