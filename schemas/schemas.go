// Package schemas holds the JSON Schemas (draft 2020-12) of the formats this module
// reads and writes. The Go decoders do not use them: package schemas/tga has its own checks,
// and a test compares the verdicts of the two.
package schemas
