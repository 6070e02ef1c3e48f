package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time span in Go's form, as "250ms" or "24h". A mistake in it is kept
// for [Parse] to report with its line.
type Duration struct {
	D   time.Duration
	bad error
}

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	switch {
	case err != nil:
		d.bad = fmt.Errorf("%q is no duration: want a number with a unit, as 30s or 24h", b)
	case v < 0:
		d.bad = fmt.Errorf("%q is negative", b)
	}
	d.D = v
	return nil
}

// Bytes is a size: an integer, or a string with one of the units KiB, MiB and GiB.
type Bytes struct {
	N   int64
	bad error
}

var units = []struct {
	suffix string
	size   int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}}

// UnmarshalText reads a size.
func (s *Bytes) UnmarshalText(b []byte) error {
	s.N, s.bad = parseBytes(string(b))
	return nil
}

func parseBytes(text string) (int64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.ReplaceAll(digits, "_", "")), 10, 64)
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange):
			continue
		case n < 0:
			return 0, fmt.Errorf("%q is negative", text)
		case err != nil || n > math.MaxInt64/u.size:
			return 0, fmt.Errorf("%q is too large", text)
		}
		return n * u.size, nil
	}
	return 0, fmt.Errorf("%q is no size: want an integer, or as 16MiB with KiB, MiB or GiB", text)
}
