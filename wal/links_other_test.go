//go:build !unix

package wal

var oneLink, twoLinks any
