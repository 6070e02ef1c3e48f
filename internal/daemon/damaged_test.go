package daemon

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// keyless is a store whose key ring lacks the key of one trace.
type keyless struct {
	Store
	trace tga.ID
}

func (s keyless) Load(ctx context.Context, id tga.ID) (*chain.Trace, error) {
	if id == s.trace {
		return nil, tga.Errorf(tga.StoreUnavailable, "trace %s: %w", id, chain.ErrKeyMissing).In(id)
	}
	return s.Store.Load(ctx, id)
}

// TestForeignDamageIsNobodysConcern: a trace that fails a check keeps no peer of another namespace from the log and from
// what waits for people, and its id reaches none of them. A peer of its namespace is told.
func TestForeignDamageIsNobodysConcern(t *testing.T) {
	roles := fmt.Sprintf("[[role]]\nuid = [%d]\nnamespace = \"*\"\nverbs = [\"read\", \"append\", \"decide\", \"admin\"]\n", os.Geteuid())
	uids := map[string]uint32{"other": 3001, tga.DefaultNamespace: 3002}
	for namespace, uid := range uids {
		roles += fmt.Sprintf("[[role]]\nuid = [%d]\nnamespace = %q\nverbs = [\"read\"]\n", uid, namespace)
	}
	b := start(t, "[[rule]]\ndecision = \"NEEDS_APPROVAL\"\n"+roles)
	res, err := b.client.Call(t.Context(), charge("k"))
	wantCode(t, err, tga.EscalationRequired)
	id := res.TraceID
	b.stop()
	o := b.options()
	o.Clock = time.Now
	d, err := open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
	whole := d.db
	defer func() { d.db = whole }()
	d.db = damaged{whole, id}
	if d.rt, err = runtime.New(d.db, d.tools, d.tools.Supervisor(), d.tools.Options()); err != nil {
		t.Fatal(err)
	}
	ask := func(namespace, path string, handle func(*request) (any, error)) (answer any, text string) {
		t.Helper()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://tgad"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := &nearAnswer{header: http.Header{}}
		q := &request{d: d, w: w, r: r, peer: peer{uid: uids[namespace], role: config.Role{Namespace: namespace, Verbs: []config.Verb{config.Read}}}}
		answer, err = handle(q)
		switch {
		case err != nil && q.status != 0:
			q.lastLine(err)
		case err != nil:
			q.refuse(err)
		}
		return answer, w.body.String()
	}
	for namespace, told := range map[string]bool{"other": false, tga.DefaultNamespace: true} {
		answer, text := ask(namespace, "/v1/approvals", (*request).approvals)
		list, ok := answer.(wire.Approvals)
		if !ok || len(list.Approvals) != 0 && !told || len(list.Approvals) != 1 && told || len(list.Unread) != 0 {
			t.Errorf("what waits in %s: %+v %s", namespace, answer, text)
		}
		_, text = ask(namespace, "/v1/log", (*request).logLines)
		if strings.Contains(text, id.String()) != told || strings.Contains(text, `"problem"`) && !told {
			t.Errorf("the log in %s:\n%s", namespace, text)
		}
		if _, text = ask(namespace, "/v1/export", (*request).export); strings.Contains(text, id.String()) != told || strings.Contains(text, `"kind":"end"`) == told {
			t.Errorf("an export of %s:\n%s", namespace, text)
		}
	}
	d.db = keyless{whole, id} // whose the trace is cannot be known
	for namespace := range uids {
		answer, text := ask(namespace, "/v1/approvals", (*request).approvals)
		if list, ok := answer.(wire.Approvals); !ok || len(list.Approvals) != 0 {
			t.Errorf("without the key, what waits in %s: %+v %s", namespace, answer, text)
		}
		_, text = ask(namespace, "/v1/log", (*request).logLines)
		_, export := ask(namespace, "/v1/export", (*request).export)
		if text += export; strings.Contains(text, id.String()) || strings.Count(text, `"code":"STORE_UNAVAILABLE"`) != 2 {
			t.Errorf("without the key, the log and an export in %s:\n%s", namespace, text)
		}
	}
}
