//go:build slim

package optional

import (
	"context"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn/emit"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// TestSlimDatabaseIsRefused: a workspace with a database is refused, and nothing of it is used.
func TestSlimDatabaseIsRefused(t *testing.T) {
	r := &workstate.Registry{}
	f, err := AddDatabase(context.Background(), r, "x.db", t.TempDir())
	if f != nil || tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("got %v, %v", f, err)
	}
	if f, err := Database(context.Background(), "x.db", t.TempDir()); f != nil || tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("got %v, %v", f, err)
	}
}

// TestSlimTelemetryWarns: telemetry that the environment asks for is not dropped silently.
func TestSlimTelemetryWarns(t *testing.T) {
	var told []string
	warn := func(text string) { told = append(told, text) }
	var o emit.Options
	if Telemetry(context.Background(), &o, nil, warn); len(told) != 0 {
		t.Errorf("nobody asked, and it says %q", told)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	closed := Telemetry(context.Background(), &o, nil, warn)
	closed(context.Background())
	if len(told) != 1 || !strings.Contains(told[0], "-tags slim") || o.Tracer != nil || o.Meter != nil {
		t.Errorf("it says %q and has %v, %v", told, o.Tracer, o.Meter)
	}
}

// TestSlimMakesNoSpans: a slim tgad makes no spans and says so.
func TestSlimMakesNoSpans(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	var told []string
	tracer, closed := Spans(context.Background(), nil, nil, func(text string) { told = append(told, text) })
	closed(context.Background())
	if tracer != nil || len(told) != 1 || !strings.Contains(told[0], "-tags slim") {
		t.Errorf("tracer %v, told %q", tracer, told)
	}
}
