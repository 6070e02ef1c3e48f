// Package browser lets a test use pages in a real browser: Chromium without a window and with one page,
// controlled over the DevTools protocol through a pair of pipes.
package browser

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Browser is a browser with one page. A command that fails ends the test.
type Browser struct {
	testing.TB
	// Complaints are the exceptions of the page, and what the browser refused or could not load.
	Complaints []string

	in      io.Writer
	out     *bufio.Reader
	session string
	number  int
}

// New starts Chromium. If Chromium is missing, the test fails and is not skipped.
func New(t testing.TB) *Browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("there is no chromium: apt-get install chromium")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Without the sandbox, which does not work for root. The pages are our own.
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &Browser{TB: t, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	t.Cleanup(func() {
		b.session = ""
		if _, err := b.ask("Browser.close", nil); err != nil {
			t.Log(err) // it may be gone before it answers
		}
		if err := cmd.Wait(); err != nil {
			t.Log(err)
		}
		in.Close()
		out.Close()
	})
	target := b.Do("Target.createTarget", map[string]any{"url": "about:blank"})
	b.session = b.Do("Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})["sessionId"].(string)
	b.Do("Log.enable", nil)
	b.Do("Runtime.enable", nil)
	return b
}

// Do sends a command to the browser and returns the answer.
func (b *Browser) Do(method string, params map[string]any) map[string]any {
	b.Helper()
	result, err := b.ask(method, params)
	if err != nil {
		b.Fatal(err)
	}
	return result
}

func (b *Browser) ask(method string, params map[string]any) (map[string]any, error) {
	b.number++
	message := map[string]any{"id": b.number, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	raw, err := json.Marshal(message)
	if err == nil {
		_, err = b.in.Write(append(raw, 0))
	}
	for err == nil {
		var answer struct {
			ID     int
			Method string
			Params json.RawMessage
			Result map[string]any
			Error  *struct{ Message string }
		}
		if raw, err = b.out.ReadBytes(0); err != nil {
			break
		}
		if err = json.Unmarshal(raw[:len(raw)-1], &answer); err != nil {
			break
		}
		switch {
		case answer.Method == "Log.entryAdded", answer.Method == "Runtime.exceptionThrown":
			b.Complaints = append(b.Complaints, string(answer.Params))
		case answer.ID != b.number: // an event, or another command's answer
		case answer.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, answer.Error.Message)
		default:
			return answer.Result, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", method, err)
}

// Value evaluates an expression on the page. If the result is a promise, Value waits for it.
func (b *Browser) Value(expression string) any {
	b.Helper()
	value, err := b.value(expression)
	if err != nil {
		b.Fatal(err)
	}
	return value
}

// value is [Browser.Value], but returns an error if the page went away before it answered.
func (b *Browser) value(expression string) (any, error) {
	b.Helper()
	answer, err := b.ask("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if err != nil {
		return nil, err
	}
	if e, failed := answer["exceptionDetails"]; failed {
		b.Fatalf("%s: %v", expression, e)
	}
	return answer["result"].(map[string]any)["value"], nil
}

// Until waits until an expression is true on the page.
func (b *Browser) Until(limit time.Duration, what, expression string) {
	b.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		value, err := b.value(expression) // an error is a page that is being left; the next page answers
		if err == nil && value == true {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("%s: not in %s; the page has %.2000s", what, limit, b.Value(`document.body?.innerText`))
		}
	}
}

// Open goes to a page and waits until it is loaded.
func (b *Browser) Open(url string) {
	b.Helper()
	if answer := b.Do("Page.navigate", map[string]any{"url": url}); answer["errorText"] != nil {
		b.Fatalf("%s: %v", url, answer["errorText"])
	}
	b.Loaded()
}

// Loaded waits until the page that a click leads to is loaded.
func (b *Browser) Loaded() {
	b.Helper()
	b.Until(time.Minute, "the page loads", `document.readyState === "complete" && location.href !== "about:blank"`)
}

// Grant gives the pages of an origin permissions that a person would be asked for, such as "notifications".
func (b *Browser) Grant(origin string, permissions ...string) {
	b.Helper()
	b.whole("Browser.grantPermissions", map[string]any{"origin": origin, "permissions": permissions})
}

// Hide opens another page in front of this one.
func (b *Browser) Hide() {
	b.Helper()
	b.whole("Target.createTarget", map[string]any{"url": "about:blank"})
	b.Until(time.Minute, "the page is hidden", "document.hidden")
}

// whole sends a command that is for the browser and not for its page.
func (b *Browser) whole(method string, params map[string]any) {
	b.Helper()
	defer func(page string) { b.session = page }(b.session)
	b.session = ""
	b.Do(method, params)
}

// Screen sets the size of the page, in pixels, and dark or light mode.
func (b *Browser) Screen(width, height int, dark bool) {
	b.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
	b.Do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}})
}

// Type types texts and presses named keys, at the cursor.
func (b *Browser) Type(keys ...string) {
	b.Helper()
	for _, key := range keys {
		if len(key) > 1 && key != "Enter" && key != "Tab" {
			b.Do("Input.insertText", map[string]any{"text": key})
			continue
		}
		press := map[string]any{"type": "keyDown", "key": key}
		switch key {
		case "Enter":
			press["text"], press["windowsVirtualKeyCode"] = "\r", 13
		case "Tab":
			press["windowsVirtualKeyCode"] = 9
		default:
			press["text"] = key
		}
		b.Do("Input.dispatchKeyEvent", press)
		b.Do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key})
	}
}

// Picture returns the part of the page that the screen shows, as a PNG.
func (b *Browser) Picture() []byte {
	b.Helper()
	data, _ := b.Do("Page.captureScreenshot", map[string]any{"format": "png"})["data"].(string)
	png, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(png) == 0 {
		b.Fatalf("no picture: %v", err)
	}
	return png
}
