// Package schemas holds the JSON Schemas (draft 2020-12) of the formats this module
// reads and writes. The Go decoders do not use them: package schemas/tga checks by
// hand, and a test holds the two to the same verdict.
package schemas

import "embed"

// FS holds tga/v1/*.schema.json. Each file stands alone: it refers to no other.
//
//go:embed tga/v1/*.schema.json
var FS embed.FS
