//go:build !jcsagrees

package tga

func assertCanonical(raw, canonical []byte) {}

func assertReadable(artifact []byte) {}
