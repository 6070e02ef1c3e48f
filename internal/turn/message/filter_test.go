package message

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tgad/tgad/schemas/tga"
)

var allPII = []string{"email", "phone", "ssn", "credit_card", "ip_address", "iban"}

func compiled(t testing.TB, f Filter) *Compiled {
	t.Helper()
	c, err := f.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// joined keeps fake secrets out of scanners' sight, our own repository's included.
func joined(parts ...string) string { return strings.Join(parts, "") }

// secrets has one text of each kind. The part between « and » must be removed.
var secretsOf = map[string][]string{
	"private_key":       {"k: «-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----» end", "cut «-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl»", "«-----BEGIN PGP PRIVATE KEY BLOCK-----\nx\n-----END PGP PRIVATE KEY BLOCK-----»"},
	"aws_access_key":    {joined("id «AKIA", "IOSFODNN7EXAMPLE»."), joined("«ASIA", "IOSFODNN7EXAMPLE»")},
	"github_token":      {joined("«ghp_", strings.Repeat("a1B2", 9), "»"), joined("«github_pat_", strings.Repeat("a1", 11), "» x")},
	"gitlab_token":      {joined("«glpat-", "abcdefghij0123456789»")},
	"slack_token":       {joined("«xoxb-", "123456789012-abcdef»")},
	"slack_webhook":     {joined("to «https://hooks.slack.com", "/services/T000/B000/a1B2c3D4e5F6»")},
	"stripe_key":        {joined("«sk_live_", "abcdefghijklmnop1234»"), joined("«rk_test_", "abcdefghijklmnop1234»")},
	"anthropic_key":     {joined("«sk-ant-", "api03-abcdefghijklmnopqrst»")},
	"openai_key":        {joined("«sk-", "proj-abcdefghijklmnopqrst»")},
	"google_key":        {joined("«AIza", strings.Repeat("aB3_x", 7), "»")},
	"npm_token":         {joined("«npm_", strings.Repeat("a1B2", 9), "»")},
	"pypi_token":        {joined("«pypi-AgE", strings.Repeat("abcd1", 11), "»")},
	"huggingface_token": {joined("«hf_", strings.Repeat("aB3", 11), "»")},
	"sendgrid_key":      {joined("«SG.", strings.Repeat("aB3_", 5), ".", strings.Repeat("xY-9", 5), "»")},
	"jwt":               {joined("«eyJhbGciOiJIUzI1NiJ9.", "eyJzdWIiOiIxMjM0In0.abc-_123»")},
	"authorization":     {"Authorization: Bearer «abc.def-123456» ok", "authorization: basic «dXNlcjpwYXNz»"},
	"url_password":      {"postgres://app:«hunter2!»@db.test/x"},
	"assignment":        {"PASSWORD=«h7Kp2xQ9»", `api_key: "«a8f5f167f44f4964e6c998dee827110c»"`, "MY_SECRET => '«Zx81-pQ0r-77aa»'", "client_secret=«qwErtYuiOpAsdfGhjKlzXc»"},
}

var piiOf = map[string][]string{
	"email":       {"to «jo.doe+x@mail.example.co.uk».", "«jürgen@müller.de»", "<«a@b.io»>", "mailto:«x_y@z-1.example»?s"},
	"phone":       {"call «+49 (0)30 1234567» now", "«(555) 123-4567»", "«555-123-4567».", "«+14155552671»"},
	"ssn":         {"is «123-45-6789».", "«123 45 6789»"},
	"credit_card": {"«4111 1111 1111 1111» thanks", "«5500-0000-0000-0004»", "no 12 «378282246310005»", "«6011111111111117» 12/27", "is «4222222222222»", "7 «4111111111111111»", "«4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1»"},
	"ip_address":  {"from «192.168.0.1»:80", "at «10.0.0.255».", "[«2001:db8::1»]:443", "«::1»", "at «fe80::1». Then", "«::ffff:10.1.2.3»"},
	"iban":        {"«DE89 3704 0044 0532 0130 00» please", "«GB82WEST12345698765432».", "«fr1420041010050500013m02606»", "«NO9386011117947»"},
}

// clean are texts in which no rule may find anything.
var clean = []string{
	"max_tokens: 4096", "token=none", "the secret: a well kept one", "password: ********", "nextPageToken=CAUQAA1234567890abcdef", "tokens = 12345678",
	"a@b", "@user mention", "user@host", "1234567890", "2026-01-15T19:00:00.000Z", "order 2023-5550-1234", "000-12-3456", "666-12-3456", "900-12-3456", "123-00-4567", "123-45-0000",
	"4111 1111 1111 1112", "1234567812345678", "0000000000000000", "1768503600123", "4111111111111111222233334444555566667777",
	"1.2.3.4.5", "999.1.1.1", "v1.2.3.4", "12:30:45", "std::vector", "a1:b2", "00:1b:44:11:3a:b7", "::",
	"DE89 3704 0044 0532 0130 01", "XX89 3704 0044 0532 0130 00", "GB82WEST1234569876543", "sk-short", "ghp_short", "eyJ.eyJ.x", "AKIAshort", "https://a.test/b:c@d",
	"550e8400-e29b-41d4-a716-446655440000", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}

// marked splits a sample into its text and the part of it that must be removed.
func marked(sample string) (text, bad string) {
	_, rest, _ := strings.Cut(sample, "«")
	bad, _, _ = strings.Cut(rest, "»")
	return strings.NewReplacer("«", "", "»", "").Replace(sample), bad
}

func TestEveryKindIsFoundAndNothingElse(t *testing.T) {
	everything := compiled(t, Filter{Secrets: true, PII: allPII, Action: Redact})
	check := func(c *Compiled, kind, rule, sample string) {
		t.Helper()
		text, bad := marked(sample)
		want := strings.Replace(text, bad, "[REDACTED:"+kind+"]", 1)
		got, found, err := c.ApplyBytes([]byte(text))
		if err != nil || string(got) != want || len(found) != 1 || found[0] != (Finding{Rule: rule, Count: 1}) {
			t.Errorf("%s: %q became %q, %v, %v; want %q", rule, text, got, found, err, want)
		}
	}
	var kinds []string
	for _, r := range secretRules {
		kinds = append(kinds, r.kind)
	}
	for _, kind := range kinds {
		if len(secretsOf[kind]) == 0 {
			t.Errorf("no sample of %s", kind)
		}
		for _, sample := range secretsOf[kind] {
			check(compiled(t, Filter{Secrets: true, Action: Redact}), kind, "secret:"+kind, sample)
		}
	}
	for _, kind := range allPII {
		for _, sample := range piiOf[kind] {
			check(compiled(t, Filter{PII: []string{kind}, Action: Redact}), kind, "pii:"+kind, sample)
		}
	}
	for _, text := range clean {
		if got, found, err := everything.ApplyBytes([]byte(text)); err != nil || string(got) != text || found != nil {
			t.Errorf("%q became %q, %v, %v", text, got, found, err)
		}
	}
}

// TestBlockNamesTheRuleAndNeverTheContent goes through every sample.
func TestBlockNamesTheRuleAndNeverTheContent(t *testing.T) {
	c := compiled(t, Filter{Secrets: true, PII: allPII, Patterns: []string{"swordfish"}})
	samples := []string{"say «swordfish»"}
	for _, kinds := range []map[string][]string{secretsOf, piiOf} {
		for _, s := range kinds {
			samples = append(samples, s...)
		}
	}
	for _, sample := range samples {
		text, bad := marked(sample)
		for _, raw := range []string{text, string(appendQuoted(nil, text)), `{"a":` + string(appendQuoted(nil, text)) + `}`, `{` + string(appendQuoted(nil, text)) + `:[1]}`} {
			out, found, err := c.ApplyBytes([]byte(raw))
			if !errors.Is(err, tga.ContentFiltered) || out != nil || len(found) != 1 {
				t.Fatalf("%q: got %q, %v, %v", raw, out, found, err)
			}
			said := err.Error() + found[0].Rule + found[0].At
			if !strings.Contains(err.Error(), found[0].Rule) || strings.Contains(said, bad) {
				t.Errorf("%q: said %q", raw, said)
			}
		}
	}
}

// TestNeighboursDoNotHideEachOther: a candidate that turns out to be no match must not hide a
// match inside it.
func TestNeighboursDoNotHideEachOther(t *testing.T) {
	c := compiled(t, Filter{PII: allPII, Action: Redact})
	for in, want := range map[string]string{
		"+14155552671 7 4111111111111111":     "[REDACTED:phone] [REDACTED:credit_card]",
		"aB3 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1": "aB3 [REDACTED:credit_card]",
		"4111111111111111 4111111111111111x":  "[REDACTED:credit_card] 4111111111111111x",
		"1.2.3.4.5 10.0.0.1":                  "1.2.3.4.5 [REDACTED:ip_address]",
		"9123-456-7890 555-123-4567":          "9123-456-7890 [REDACTED:phone]",
	} {
		if got, _, err := c.ApplyBytes([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%q became %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestPatternsAndSize(t *testing.T) {
	c := compiled(t, Filter{Patterns: []string{`(?i)project \w+`, `x{3}`}, MaxBytes: 40, Action: Redact})
	got, found, err := c.ApplyBytes([]byte("see Project Apollo, xxx; project zeus"))
	if err != nil || string(got) != "see [REDACTED:pattern], [REDACTED:pattern]; [REDACTED:pattern]" {
		t.Errorf("got %q, %v", got, err)
	}
	if diff := cmp.Diff([]Finding{{"pattern:0", "", 2}, {"pattern:1", "", 1}}, found); diff != "" {
		t.Error(diff)
	}
	for _, n := range []int{40, 41} {
		_, found, err := c.ApplyBytes([]byte(strings.Repeat("é", 20)[:40] + strings.Repeat("y", n-40)))
		if (n > 40) != errors.Is(err, tga.ContentFiltered) || n > 40 && found[0].Rule != "size" {
			t.Errorf("%d bytes: %v, %v", n, found, err)
		}
		m := Message{Content: []Part{text(strings.Repeat("y", 10)), {Type: File, Name: "n", URI: "uri", Data: []byte("data")}, {Type: Image, Data: []byte("\xff\xfe no text")}},
			ToolCalls: []ToolCall{{Arguments: strings.Repeat("z", n-18)}}}
		_, found, err = c.Apply([]Message{{}, m})
		if (n > 40) != errors.Is(err, tga.ContentFiltered) || n > 40 && found[0] != (Finding{"size", "/1", 1}) {
			t.Errorf("a message of %d bytes: %v, %v", n, found, err)
		}
	}
	for _, f := range []Filter{
		{Action: "log"}, {MaxBytes: -1}, {PII: []string{"shoe_size"}}, {Patterns: []string{"("}}, {Patterns: []string{`(?=x)`}}, {Patterns: []string{""}}, {Patterns: []string{"a*"}},
	} {
		if c, err := f.Compile(); !errors.Is(err, tga.ValidationError) || c != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, n := range []int{0, 1} {
		_, err := Filter{Patterns: []string{strings.Repeat("a", MaxPatternBytes+n)}}.Compile()
		_, err2 := Filter{Patterns: slices.Repeat([]string{"a"}, MaxPatterns+n)}.Compile()
		if (n == 1) != errors.Is(err, tga.LimitExceeded) || (n == 1) != errors.Is(err2, tga.LimitExceeded) {
			t.Errorf("%d past the limits: %v, %v", n, err, err2)
		}
	}
	if !(Filter{Action: Redact}).Off() || (Filter{Secrets: true}).Off() || (Filter{MaxBytes: 1}).Off() || (Filter{PII: allPII}).Off() || (Filter{Patterns: []string{"a"}}).Off() {
		t.Error("Off is wrong about a filter")
	}
}

// TestTooManyMatchesTakeTheWholeText: at the limit each match is removed, past it the whole text.
func TestTooManyMatchesTakeTheWholeText(t *testing.T) {
	c := compiled(t, Filter{Patterns: []string{"x(.*y)?"}, Action: Redact})
	got, found, err := c.ApplyBytes([]byte(strings.Repeat("x ", mostMatches)))
	if err != nil || string(got) != strings.Repeat("[REDACTED:pattern] ", mostMatches) || found[0].Count != mostMatches {
		t.Errorf("at the limit: %d bytes, %v, %v", len(got), found, err)
	}
	if got, _, err := c.ApplyBytes([]byte(strings.Repeat("x ", mostMatches+1))); err != nil || string(got) != "[REDACTED:pattern]" {
		t.Errorf("past the limit: %d bytes, %v", len(got), err)
	}
	for size, want := range map[int]int{0: 1000, mostRead / 1000: 1000, mostRead/1000 + 100: 997, mostRead / 16: 16, mostRead: 16} {
		if n := matches(strings.Repeat("x", size)); n != want {
			t.Errorf("of %d bytes: %d matches, want %d", size, n, want)
		}
	}
}

// TestHostileTexts filters texts that are made to be read again and again. The test ends soon if
// the work is linear in the text, and times out if it is quadratic.
func TestHostileTexts(t *testing.T) {
	if testing.Short() {
		t.Skip("megabytes, slow under the race detector")
	}
	const size = 1 << 16
	c := compiled(t, Filter{Secrets: true, PII: allPII, Action: Redact})
	for _, one := range []string{
		"x", "secret", "secret ", "secret=", "token: ", "password=a1b2c3d4", "authorization: ", "authorization:bearer ", "://", "://a:", "a://b:c@", "@", "a@", "a@b.", "a@b.cc.1",
		"+1", "+1 ", "1", "1 ", "4 ", "555-123-", "123-45-6", "1.1.1.", ":", "::", "a:", "1:2:", "GB82", "GB82 ", "DE8937040044053201300", "eyJaaaaaaaa.", "eyJaaaaaaaa.eyJ",
		"-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "-----BEGIN PRIVATE KEY----------END ", "SG.", "SG.aaaaaaaaaaaaaaaa.", "AKIA", "sk-", "ghp_", "é", "\xff", "{", "[", "\"", "\\",
	} {
		text := strings.Repeat(one, size/len(one))
		quoted := string(appendQuoted(nil, text))
		for _, raw := range []string{text, quoted, "[" + strings.Repeat(string(appendQuoted(nil, one))+",", size/(len(one)+3)) + "1]"} {
			if out, _, err := c.ApplyBytes([]byte(raw)); err != nil || json.Valid([]byte(raw)) && !json.Valid(out) {
				t.Errorf("%q again and again: %v", one, err)
			}
		}
	}
	// Rules without a regular expression are fast, so quadratic work shows only in a longer text.
	for _, one := range []string{"secret=", "credentials : ", "token =", "api_key", "://a:", "authorization: ", "@a", "+1", "1.", "::", "AD12"} {
		if _, _, err := c.ApplyBytes([]byte(strings.Repeat(one, 2<<20/len(one)))); err != nil {
			t.Errorf("%q again and again: %v", one, err)
		}
	}
	// Places that are expensive to name, and more of them than are reported.
	const depth = 9000
	deep := strings.Repeat(`{"a":`, depth) + "[" + strings.Repeat(`"a@b.io","[]",`, MaxFindings*5) + "1]" + strings.Repeat("}", depth)
	out, found, err := c.ApplyBytes([]byte(deep))
	if err != nil || !json.Valid(out) || len(found) != MaxFindings+1 || found[MaxFindings] != (Finding{"pii:email", "…", MaxFindings * 4}) || found[0].At != strings.Repeat("/a", mostTokens)+"/…" {
		t.Errorf("%d found, %v, %+v", len(found), err, found[len(found)-1])
	}
}

// TestRedactionInJSON: JSON stays JSON, and a text in which no rule finds anything keeps its
// bytes.
func TestRedactionInJSON(t *testing.T) {
	c := compiled(t, Filter{Secrets: true, PII: allPII, Action: Redact})
	for _, x := range []struct {
		name, in, out string
		at            []string
	}{
		{"strings", `{ "a" : "mail a@b.io <now>", "n":9007199254740993, "b":[true,null,"x@y.io"] }`,
			`{ "a" : "mail [REDACTED:email] <now>", "n":9007199254740993, "b":[true,null,"[REDACTED:email]"] }`, []string{"/a", "/b/2"}},
		{"escapes", `["a\u0040b.io","\ud83d\ude00 \/ kept","\"a@b.io\""]`, `["[REDACTED:email]","\ud83d\ude00 \/ kept","\"[REDACTED:email]\""]`, []string{"/0", "/2"}},
		{"numbers", `{"card":4111111111111111,"n":[-1.5e3,4111111111111112]}`, `{"card":"[REDACTED:credit_card]","n":[-1.5e3,4111111111111112]}`, []string{"/card"}},
		{"a number alone", `4111111111111111`, `"[REDACTED:credit_card]"`, []string{""}},
		{"names", `{"a@b.io":{"c@d.io":1},"e@f.io":2,"g@h.io":"i@j.io"}`,
			`{"[REDACTED:email]":{"[REDACTED:email]":1},"[REDACTED:email]#2":2,"[REDACTED:email]#3":"[REDACTED:email]"}`,
			[]string{"/[REDACTED:email]", "/[REDACTED:email]/[REDACTED:email]", "/[REDACTED:email]#2", "/[REDACTED:email]#3", "/[REDACTED:email]#3"}},
		{"names that were redacted before", `{"a@b.io":1,"[REDACTED:email]":2,"[REDACTED:email]#2":3}`, `{"[REDACTED:email]":1,"[REDACTED:email]#2":2,"[REDACTED:email]#2#2":3}`, []string{"/[REDACTED:email]"}},
		{"names that were twice there before", `{"[REDACTED:x]":1,"[REDACTED:x]":2}`, `{"[REDACTED:x]":1,"[REDACTED:x]":2}`, nil},
		{"a name says what its value is", `{"db_password":"h7Kp2xQ9","password":"correct","apiKey":"a8f5f167f44f","nextPageToken":"a8f5f167f44f4964","x":{"token":["h7Kp2xQ9"],"y":"h7Kp2xQ9"}}`,
			`{"db_password":"[REDACTED:assignment]","password":"correct","apiKey":"[REDACTED:assignment]","nextPageToken":"a8f5f167f44f4964","x":{"token":["h7Kp2xQ9"],"y":"h7Kp2xQ9"}}`, []string{"/db_password", "/apiKey"}},
		{"JSON in a string", `{"text":"{\"card\": 4111111111111111, \"n\": 1.0, \"password\":\"h7Kp2xQ9\"}"}`,
			`{"text":"{\"card\": \"[REDACTED:credit_card]\", \"n\": 1.0, \"password\":\"[REDACTED:assignment]\"}"}`, []string{"/text/card", "/text/password"}},
		{"no JSON", `{"a": a@b.io`, `{"a": [REDACTED:email]`, []string{""}},
		{"nothing", ` { "a" : [ ] } `, ` { "a" : [ ] } `, nil},
		{"empty", ``, ``, nil},
		{"no UTF-8", "a@b.io \xff", "[REDACTED:email] \xff", []string{""}},
	} {
		in := []byte(x.in)
		got, found, err := c.ApplyBytes(in)
		if err != nil || string(got) != x.out {
			t.Errorf("%s: got %s, %v\nwant %s", x.name, got, err, x.out)
		}
		var places []string
		for _, f := range found {
			places = append(places, f.At)
		}
		if !slices.Equal(places, x.at) {
			t.Errorf("%s: found at %q, want %q", x.name, places, x.at)
		}
		if string(in) != x.in {
			t.Errorf("%s: the input was changed", x.name)
		}
		if json.Valid(in) != json.Valid(got) {
			t.Errorf("%s: %s is valid: %v", x.name, got, json.Valid(got))
		}
	}
}

// TestFilterReachesAllOfAMessage puts an address into every part of a message.
func TestFilterReachesAllOfAMessage(t *testing.T) {
	m := Message{Role: Assistant, Content: []Part{
		text("a@b.io"), {Type: File, Name: "a@b.io", URI: "mailto:a@b.io", Data: []byte("to: a@b.io")}, {Type: Image, MIME: "image/png", Data: []byte("\xff a@b.io")},
	}, ToolCalls: []ToolCall{{"c", "f", `{"to": "a@b.io", "n": 1.0}`}}, Metadata: meta(FormatOpenAI)}
	const x = "[REDACTED:email]"
	want := Message{Role: Assistant, Content: []Part{
		text(x), {Type: File, Name: x, URI: "mailto:" + x, Data: []byte("to: " + x)}, {Type: Image, MIME: "image/png", Data: []byte("\xff a@b.io")},
	}, ToolCalls: []ToolCall{{"c", "f", `{"to": "` + x + `", "n": 1.0}`}}, Metadata: meta(FormatOpenAI)}
	in := []Message{m}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	got, found, err := compiled(t, Filter{PII: []string{"email"}, Action: Redact}).Apply(in)
	if diff := cmp.Diff([]Message{want}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	var places []string
	for _, f := range found {
		places = append(places, f.At)
	}
	if p := []string{"/0/content/0/text", "/0/content/1/name", "/0/content/1/uri", "/0/content/1/data", "/0/tool_calls/0/arguments/to"}; !slices.Equal(places, p) {
		t.Errorf("found at %q", places)
	}
	if after, err := json.Marshal(in); err != nil || string(after) != string(raw) {
		t.Errorf("the input was changed: %s, %v", after, err)
	}
	if _, _, err := compiled(t, Filter{PII: []string{"email"}}).Apply(in); !errors.Is(err, tga.ContentFiltered) {
		t.Error(err)
	}
	if got, found, err := compiled(t, Filter{}).Apply(in); err != nil || found != nil || !reflect.DeepEqual(got, in) {
		t.Errorf("the zero filter: %v, %v", found, err)
	}
}

// TestRedactedTextHasNothingLeft mixes samples with each other and with noise.
func TestRedactedTextHasNothingLeft(t *testing.T) {
	c := compiled(t, Filter{Secrets: true, PII: allPII, Action: Redact})
	var samples []string
	for _, kinds := range []map[string][]string{secretsOf, piiOf} {
		for _, s := range kinds {
			samples = append(samples, s...)
		}
	}
	slices.Sort(samples)
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		var bad []string
		for range rapid.IntRange(1, 6).Draw(t, "n") {
			in, secret := marked(rapid.SampledFrom(samples).Draw(t, "sample"))
			b.WriteString(in + rapid.SampledFrom([]string{" ", "\n", ", ", " | "}).Draw(t, "gap"))
			bad = append(bad, secret)
		}
		text := b.String()
		if rapid.Bool().Draw(t, "JSON") {
			text = `{"a":[` + string(appendQuoted(nil, text)) + `]}`
		}
		once, _, err := c.ApplyBytes([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		twice, found, err := c.ApplyBytes(once)
		if err != nil || len(found) > 0 || string(twice) != string(once) {
			t.Fatalf("%q became %q, then %q: %v, %v", text, once, twice, found, err)
		}
		for _, s := range bad {
			if len(s) > 6 && strings.Contains(string(once), s) {
				t.Fatalf("%q is left in %q", s, once)
			}
		}
	})
}
