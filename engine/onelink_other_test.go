//go:build !unix

package engine_test

var oneLink any
