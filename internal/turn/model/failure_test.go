package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/modelserver"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/model"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestFailures checks how each status is classified.
func TestFailures(t *testing.T) {
	in90s := now.Add(90 * time.Second).Format(http.TimeFormat)
	for _, c := range []struct {
		status    int
		code      string
		after     string
		want      tga.Code
		permanent bool
		wait      time.Duration
	}{
		{302, "", "", tga.LLMError, true, 0},
		{400, "invalid_request_error", "", tga.ValidationError, true, 0},
		{400, "content_filter", "", tga.ContentFiltered, true, 0},
		{400, "context_length_exceeded", "", tga.ValidationError, true, 0},
		{401, "authentication_error", "", tga.LLMError, true, 0},
		{401, "invalid_request_error", "", tga.LLMError, true, 0},
		{402, "billing_error", "", tga.QuotaExceeded, true, 0},
		{402, "", "", tga.QuotaExceeded, true, 0},
		{403, "permission_error", "", tga.LLMError, true, 0},
		{404, "not_found_error", "", tga.ValidationError, true, 0},
		{408, "", "", tga.LLMTimeout, false, 0},
		{409, "", "1", tga.LLMError, false, time.Second},
		{413, "request_too_large", "", tga.ValidationError, true, 0},
		{418, "", "", tga.ValidationError, true, 0},
		{422, "invalid_request_error", "", tga.ValidationError, true, 0},
		{429, "rate_limit_error", "7", tga.RateLimited, false, 7 * time.Second},
		{429, "rate_limit_exceeded", "0.5", tga.RateLimited, false, 500 * time.Millisecond},
		{429, "rate_limit_error", in90s, tga.RateLimited, false, 90 * time.Second},
		{429, "rate_limit_error", now.Add(-time.Hour).Format(http.TimeFormat), tga.RateLimited, false, 0},
		{429, "rate_limit_error", "soon", tga.RateLimited, false, 0},
		{429, "rate_limit_error", "-3", tga.RateLimited, false, 0},
		{429, "rate_limit_error", "86400", tga.RateLimited, false, 24 * time.Hour},
		{429, "rate_limit_error", "86401", tga.RateLimited, false, 24 * time.Hour},
		{429, "rate_limit_error", "1e300", tga.RateLimited, false, 24 * time.Hour},
		{429, "insufficient_quota", "7", tga.QuotaExceeded, true, 7 * time.Second},
		{500, "api_error", "", tga.LLMError, false, 0},
		{503, "", "2", tga.LLMError, false, 2 * time.Second},
		{504, "timeout_error", "", tga.LLMTimeout, false, 0},
		{529, "overloaded_error", "", tga.LLMError, false, 0},
	} {
		each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, _ bool) {
			s := script(t, modelserver.Answer{Status: c.status, Code: c.code, Message: "no such luck", RetryAfter: c.after})
			_, err := make(s, model.Options{}).Generate(context.Background(), aQuestion())
			f := failure(t, err)
			if f.Code != c.want || f.Permanent != c.permanent || f.RetryAfter != c.wait || !strings.Contains(f.Message, "no such luck") || f.Details["status"] != c.status {
				t.Errorf("%d %s: got %+v", c.status, c.code, f)
			}
			if n := s.Counts().Requests; n != 1 {
				t.Errorf("%d %s: %d requests", c.status, c.code, n)
			}
			if _, err := json.Marshal(f); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestErrorWithinAStream(t *testing.T) {
	for code, want := range map[string]tga.Code{
		"overloaded_error": tga.LLMError, "rate_limit_error": tga.RateLimited, "invalid_request_error": tga.ValidationError, "": tga.LLMError,
	} {
		each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
			if !stream {
				return
			}
			s := script(t, modelserver.Answer{Text: "so far so good", Broken: 3, Code: code, Message: "overloaded"})
			_, err := make(s, model.Options{}).Generate(context.Background(), aQuestion())
			if f := failure(t, err); f.Code != want || !strings.Contains(f.Message, "overloaded") {
				t.Errorf("%q: got %+v", code, f)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte("sk-secret-one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TGAD_TEST_KEY", "sk-secret-one")
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, _ bool) {
		s := serve(t, modelserver.Options{Key: "sk-secret-one", Script: []modelserver.Answer{{Text: "a"}, {Text: "b"}}})
		for _, key := range []model.Key{model.KeyFile(path), model.KeyEnv("TGAD_TEST_KEY")} {
			if _, err := make(s, model.Options{Key: key}).Generate(context.Background(), aQuestion()); err != nil {
				t.Error(err)
			}
		}
		_, err := make(s, model.Options{}).Generate(context.Background(), aQuestion())
		if f := failure(t, err); f.Code != tga.LLMError || !f.Permanent {
			t.Errorf("without a key: %+v", f)
		}
		before := s.Counts().Requests
		open := filepath.Join(dir, "open")
		if err := os.WriteFile(open, []byte("sk-secret-one"), 0o644); err != nil {
			t.Fatal(err)
		}
		empty := filepath.Join(dir, "empty")
		if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
			t.Fatal(err)
		}
		long := filepath.Join(dir, "long")
		if err := os.WriteFile(long, []byte(strings.Repeat("k", 64<<10+1)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, key := range []model.Key{
			model.KeyFile(open), model.KeyFile(empty), model.KeyFile(long), model.KeyFile(dir), model.KeyFile(dir + "/none"), model.KeyEnv("TGAD_NO_SUCH_KEY"),
			func() (string, error) { return "two\nlines", nil },
		} {
			_, err := make(s, model.Options{Key: key}).Generate(context.Background(), aQuestion())
			if f := failure(t, err); f.Code != tga.LLMError || !f.Permanent || !errors.Is(err, runtime.ErrNotSent) || strings.Contains(f.Message, "secret") {
				t.Errorf("got %+v", f)
			}
		}
		if n := s.Counts().Requests; n != before {
			t.Errorf("%d requests without a key that could be read", n-before)
		}
	})
}

// TestKeyIsInNoError makes the server repeat the key in its error.
func TestKeyIsInNoError(t *testing.T) {
	const secret = "sk-very-secret-0123456789"
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
		answers := []modelserver.Answer{
			{Status: 401, Code: "authentication_error " + secret, Message: "the key " + secret + " is not known"},
			{Body: `{"error":{"type":"x","message":"` + secret + `"},"type":"error"}`},
			{Body: secret},
		}
		if stream {
			answers = append(answers, modelserver.Answer{Text: "abc", Broken: 1, Message: secret})
		}
		s := script(t, answers...)
		m := make(s, model.Options{Key: func() (string, error) { return secret, nil }})
		for range answers {
			_, err := m.Generate(context.Background(), aQuestion())
			f := failure(t, err)
			raw, merr := json.Marshal(f)
			if merr != nil {
				t.Fatal(merr)
			}
			if strings.Contains(fmt.Sprintf("%s %v %+v %v", raw, err, f, f.Err), secret) {
				t.Errorf("the key is in %s %v", raw, f.Err)
			}
		}
	})
}

func TestWhatIsNotSentSaysSo(t *testing.T) {
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, _ bool) {
		s := script(t, modelserver.Answer{Text: "x"})
		for name, change := range map[string]func(*turn.Question){
			"no key":         func(q *turn.Question) { q.Key = "" },
			"key of two":     func(q *turn.Question) { q.Key = "a\r\nX: y" },
			"key with space": func(q *turn.Question) { q.Key = "a " },
			"no message":     func(q *turn.Question) { q.System, q.Messages = "", nil },
			"audio": func(q *turn.Question) {
				q.Messages[0].Content = []message.Part{{Type: message.File, MIME: "audio/wav", Data: []byte("RIFF")}}
			},
		} {
			q := aQuestion()
			change(&q)
			_, err := make(s, model.Options{}).Generate(context.Background(), q)
			if f := failure(t, err); f.Code != tga.ValidationError || !f.Permanent || !errors.Is(err, runtime.ErrNotSent) {
				t.Errorf("%s: got %+v", name, f)
			}
		}
		if n := s.Counts().Requests; n != 0 {
			t.Errorf("%d requests", n)
		}
		m := make(s, model.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := m.Generate(ctx, aQuestion())
		if f := failure(t, err); !errors.Is(err, runtime.ErrNotSent) || f.Code != tga.LLMError {
			t.Errorf("cancelled before: %+v", f)
		}
	})
	// A port that nobody listens on.
	s, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	url := s.URL()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := model.OpenAI(model.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Generate(context.Background(), aQuestion()); !errors.Is(err, runtime.ErrNotSent) || failure(t, err).Permanent {
		t.Error(err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []model.Options{
		{BaseURL: "ftp://h/"}, {BaseURL: "http:///x"}, {BaseURL: "http://h/#x"}, {BaseURL: "http://user:secret@h/"}, {BaseURL: "http://h\x00/"},
		{MaxAnswer: -1}, {MaxTokens: -1},
	} {
		for _, make := range []func(model.Options) (turn.Model, error){model.OpenAI, model.Anthropic} {
			if m, err := make(o); !errors.Is(err, tga.ValidationError) || m != nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%+v: got %v", o, err)
			}
		}
	}
	for _, make := range []func(model.Options) (turn.Model, error){model.OpenAI, model.Anthropic} {
		if _, err := make(model.Options{}); err != nil {
			t.Error(err)
		}
	}
}
