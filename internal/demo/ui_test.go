//go:build unix

package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/browser"
	"github.com/tgad/tgad/internal/serial"
)

// TestPersonSettlesTheStage: on the stage of tgad demo --ui, a person approves a call and settles one in
// doubt, in at most six actions each, and finds the finished turn. An action is an opened page, a text or a
// click.
func TestPersonSettlesTheStage(t *testing.T) {
	serial.Long(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		o := build()
		err := RunUI(ctx, Options{Exe: o.Exe, Lab: o.Lab, Out: out})
		out.Close()
		ended <- err
	}()
	link, said := "", ""
	for lines := bufio.NewScanner(in); link == "" && lines.Scan(); {
		said += lines.Text() + "\n"
		if m := regexp.MustCompile(`^open (http://\S+)$`).FindStringSubmatch(lines.Text()); m != nil {
			link = m[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, in) }()
	if link == "" || !strings.Contains(said, "press Approve") {
		cancel()
		t.Fatalf("it says\n%s\nand ends with %v", said, <-ended)
	}
	b, actions := browser.New(t), 0
	shows := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			b.Until(20*time.Second, "the page shows "+text, fmt.Sprintf("document.body?.innerText.includes(%q) === true", text))
		}
	}
	open := func(at string) { actions++; b.Open(at) }
	act := func(expression string) { actions++; b.Value(expression) }
	most := func(what string) {
		t.Helper()
		if actions > 6 {
			t.Errorf("%s took %d actions", what, actions)
		}
		actions = 0
	}
	article := func(text string) string {
		return fmt.Sprintf("[...document.querySelectorAll('article')].find((a) => a.innerText.includes(%q))", text)
	}
	open(link)
	shows("Waiting for a decision (1)", "Calls in doubt (1)", "the charge of order 17")
	act(article("the charge of order 17") + `.querySelector("input[name=why]").value = "the customer confirmed it"`)
	act(article("the charge of order 17") + `.querySelector("button[formaction$=approve]").click()`)
	shows("Approve: recorded. The call is COMPLETED.")
	most("the approval")
	act(`document.querySelector(".done a[href='/']").click()`)
	shows("the charge of order 18")
	act(article("order-18") + `.querySelector("input[name=why]").value = "the journal has one charge"`)
	act(article("order-18") + `.querySelector("button[formaction$=ran]").click()`)
	shows("It ran: recorded. The call is COMPLETED.")
	most("the doubt")
	act(`document.querySelector("nav a[href='/turns']").click()`)
	shows("Turns")
	act(`document.querySelector("input[name=all]").click()`)
	act(`document.querySelector("form.filter button").click()`)
	shows("treasurer")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
