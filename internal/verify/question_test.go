package verify

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestValuesStayInTheirPlace(t *testing.T) {
	for _, test := range []struct{ template, id, want string }{
		{"https://h/v1/{resource_id}", "7", "https://h/v1/7"},
		{"https://h/v1/{resource_id}", "a/b c?d#e%2f&=é", "https://h/v1/a%2Fb%20c%3Fd%23e%252f&=%C3%A9"},
		{"https://h/v1/{+resource_id}/x", "a/b c", "https://h/v1/a/b%20c/x"},
		{"https://h/v1?id={resource_id}&v={resource_id}", "a/b c&v=2#", "https://h/v1?id=a%2Fb+c%26v%3D2%23&v=a%2Fb+c%26v%3D2%23"},
		{"https://h/v1/x{resource_id}y", "..", ""},
		{"https://h/v1/{resource_id}", "..", ""},
		{"https://h/v1/{resource_id}", ".", ""},
		{"https://h/v1/{resource_id}", "a/../b", ""},
		{"https://h/v1/{+resource_id}", "a/../b", ""},
		{"https://h/v1/{+resource_id}", "/a", ""},
		{"https://h/v1/{+resource_id}", "a//b", ""},
		{"https://h/v1/{+resource_id}", "a/", ""},
		{"https://h/v1/{resource_id}", "https://x/y", "https://h/v1/https:%2F%2Fx%2Fy"},
		{"https://h/v1/{resource_id}.{resource_id}", ".", ""},
		{"https://h/v1/.{resource_id}/x", "a", "https://h/v1/.a/x"},
		{"https://h/v1/{resource_id}", "", ""},
		{"https://h/v1?id={resource_id}", "", ""},
	} {
		u, err := ParseURL("url", test.template, ChangeNames)
		if err != nil {
			t.Errorf("%s: %v", test.template, err)
			continue
		}
		got, err := u.Expand(OfChange(tga.StateChange{ResourceID: test.id}))
		if got != test.want || (err == nil) != (test.want != "") || err != nil && tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s with %q: got %q, %v", test.template, test.id, got, err)
		}
	}
}

// FuzzExpand: whatever a value is, the URL keeps its host, its other segments and the other parts of its
// query, and the value can be read back from it.
func FuzzExpand(f *testing.F) {
	for _, v := range []string{"7", "a/b", "..", "?", "#", "%", "\\", "@evil.example/", "é\x00\r\n", "a&id=2"} {
		f.Add(v)
	}
	path, err := ParseURL("url", "https://h/v1/{resource_id}/end", ChangeNames)
	if err != nil {
		f.Fatal(err)
	}
	query, err := ParseURL("url", "https://h/v1?a=1&id={resource_id}&z=2", ChangeNames)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, v string) {
		s := OfChange(tga.StateChange{ResourceID: v})
		if full, err := path.Expand(s); err == nil {
			u, err := url.Parse(full)
			if err != nil || u.Host != "h" || u.RawQuery != "" || u.Fragment != "" {
				t.Fatalf("%q: %q, %v", v, full, err)
			}
			parts := strings.Split(u.EscapedPath(), "/")
			back, err := url.PathUnescape(parts[2])
			if len(parts) != 4 || parts[1] != "v1" || parts[3] != "end" || back != v || err != nil {
				t.Fatalf("%q: %q", v, parts)
			}
		}
		if full, err := query.Expand(s); err == nil {
			u, err := url.Parse(full)
			if err != nil || u.Host != "h" || u.Path != "/v1" || u.Fragment != "" {
				t.Fatalf("%q: %q, %v", v, full, err)
			}
			if q := u.Query(); len(q) != 3 || q.Get("id") != v || q.Get("a") != "1" || q.Get("z") != "2" {
				t.Fatalf("%q: %v", v, q)
			}
		}
	})
}

func TestURLIsChecked(t *testing.T) {
	for template, ok := range map[string]bool{
		"http://h/": true, "https://h:1/{key}": true, "https://h/{/a/b}": true, "https://h/?{tool}": true, "http://h": true,
		"": false, "ftp://h/": false, "h/x": false, "https:///x": false, "https://u:p4ssword@h/": false, "https://h/#x": false,
		"https://{key}/": false, "https://h{key}/": false, "https://h:{key}/": false, "{key}": false, "https://h?{key}": false,
		"https://h/{key": false, "https://h/key}": false, "https://h/{}": false, "https://h/{version}": false, "https://h/{a~2}": false,
		"https://h/?k={+key}": false, "https://h/{k{ey}": false, "https://h/\x00": false,
	} {
		_, err := ParseURL("url", template, CallNames)
		if (err == nil) != ok || err != nil && (tga.CodeOf(err) != tga.ValidationError || strings.Contains(err.Error(), "p4ssword")) {
			t.Errorf("%q: %v", template, err)
		}
	}
}

func TestArgs(t *testing.T) {
	call := runtime.Call{Key: `k"1`, Tool: "charge", TraceID: tga.ID{1}, Args: []byte(`{"amount":12.5,"c":{"id":"7"},"dup":{"x":1,"x":2}}`)}
	build := func(table map[string]string) (string, error) {
		a, err := ParseArgs("arguments", table, CallNames)
		if err != nil {
			return "", err
		}
		b, err := a.Build(OfCall(call))
		return string(b), err
	}
	for _, test := range []struct {
		table map[string]string
		want  string
	}{
		{nil, `{}`},
		{map[string]string{"z": "key", "a\"": "/c"}, `{"a\"":{"id":"7"},"z":"k\"1"}`},
		{map[string]string{"n": "/amount", "t": "=true", "s": `="x"`, "o": `={"b":1, "a":2}`}, `{"n":12.5,"o":{"a":2,"b":1},"s":"x","t":true}`},
		{map[string]string{"n": "/none?", "m": "/amount?"}, `{"m":12.5}`},
		{map[string]string{"n": "/none"}, ""},
		{map[string]string{"n": "/dup/x"}, ""},
		{map[string]string{"n": "=tru"}, ""},
		{map[string]string{"n": "=9007199254740993"}, ""},
		{map[string]string{"n": `={"a":1,"a":2}`}, ""},
		{map[string]string{"n": "version"}, ""},
		{map[string]string{"n": ""}, ""},
	} {
		got, err := build(test.table)
		if (err == nil) != (test.want != "") || test.want != "" && got != test.want {
			t.Errorf("%v: got %s, %v", test.table, got, err)
		}
	}
	if NamesCall([]string{"tool", "server"}) || !NamesCall([]string{"tool", "/c/id"}) || !NamesCall([]string{"key"}) {
		t.Error("NamesCall")
	}
}

func TestEvidenceIsBounded(t *testing.T) {
	for name, body := range map[string][]byte{
		"none": nil, "empty": {}, "text": []byte(`{"a":1}`), "no UTF-8": {0xff, 0xfe, 'a'},
		"at the limit": []byte(strings.Repeat("a", MaxEvidence/2)), "one past": []byte(strings.Repeat("a", MaxEvidence/2+1)),
		"long": []byte(strings.Repeat("é", MaxBody/2)), "worst": make([]byte, MaxBody), // a zero is six bytes in JSON
	} {
		e := Evidence("GET "+strings.Repeat("x", 2*maxSource), map[string]any{"status": 200, "why": strings.Repeat("w", 2*maxSource)}, body, nil)
		canonical, err := tga.Canonicalize(e.Detail, tga.Limits{})
		if len(e.Detail) > MaxEvidence || len(e.Source) > maxSource || err != nil || string(canonical) != string(e.Detail) {
			t.Errorf("%s: detail of %d bytes, %v", name, len(e.Detail), err)
		}
		var d map[string]any
		if err := json.Unmarshal(e.Detail, &d); err != nil {
			t.Fatal(err)
		}
		if body == nil {
			if _, ok := d["body"]; ok {
				t.Errorf("%s: %s", name, e.Detail)
			}
			continue
		}
		if d["body_bytes"] != float64(len(body)) || d["body_sha256"] != tga.Sum(body).String() || (d["body_cut"] == true) != (len(body) > MaxEvidence/2) {
			t.Errorf("%s: %.200s", name, e.Detail)
		}
	}
	// Too many members, or bytes that are not JSON, do not lose the finding.
	big := map[string]any{}
	for i := range 40 {
		big[strings.Repeat("k", i+1)] = strings.Repeat("v", maxSource)
	}
	for _, members := range []map[string]any{big, {"f": func() {}}} {
		if e := Evidence("s", members, []byte("b"), nil); len(e.Detail) > MaxEvidence || !json.Valid(e.Detail) {
			t.Errorf("%.100s", e.Detail)
		}
	}
}

func TestSecretsAreHidden(t *testing.T) {
	hide := NewSecrets(`Bearer t0ken/"x"+y`, "Basic dXNlcm5hbWU6cGFzc3dvcmQ=", "1")
	for _, echo := range []string{
		`t0ken/"x"+y`, `{"h":"t0ken/\"x\"+y"}`, "t=t0ken%2F%22x%22%2By", "username:password", "pass=password", "dXNlcm5hbWU6cGFzc3dvcmQ=",
		`Bearer t0ken/"x"+y`,
	} {
		got := hide.Hide(echo)
		if !strings.Contains(got, hidden) || strings.Contains(got, "t0ken") || strings.Contains(got, "password") || strings.Contains(got, "dXN") {
			t.Errorf("%q: %q", echo, got)
		}
	}
	if got := hide.Hide("1 bird"); got != "1 bird" {
		t.Errorf("got %q", got)
	}
	e := Evidence("GET https://h/password", map[string]any{"etag": "password"}, []byte("your password"), hide)
	if strings.Contains(e.Source+string(e.Detail), "password") {
		t.Errorf("%s %s", e.Source, e.Detail)
	}
	// A secret that is cut in the middle could not be found any more.
	e = Evidence("s", nil, []byte(strings.Repeat("a", MaxEvidence/2-4)+"password"), hide)
	if strings.Contains(string(e.Detail), "pass") {
		t.Error("a part of a secret at the cut")
	}
}

// TestSecretFileNamesItsKey: package secretfile has the rule; the error names the key of the configuration.
func TestSecretFileNamesItsKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, mode := range []os.FileMode{0o600, 0o604} {
		if err := os.WriteFile(path, []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		raw, err := ReadSecret("token_file", path)
		if good := mode == 0o600; good && (err != nil || string(raw) != "x\n") ||
			!good && (tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), "token_file: ")) {
			t.Errorf("mode %v: %q, %v", mode, raw, err)
		}
	}
}
