// Package fuzz holds the fuzz targets that need more than one package, or an outside
// implementation to agree with. Nothing imports it.
//
// Run one with go test -fuzz FuzzCanonicalAgreesWithJCS ./fuzz.
package fuzz
