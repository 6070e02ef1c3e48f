//go:build unix && !linux

package paper

const pollClosed = 0
