// Package schemas holds the JSON Schemas (draft 2020-12) of the formats this module
// reads and writes. The Go decoders do not use them: package schemas/tga checks by
// hand, and a test holds the two to the same verdict.
package schemas
