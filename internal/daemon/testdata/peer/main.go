// Command peer makes requests to a daemon as the user that it runs as. It reads them from its standard
// input, as a JSON array, and prints them with their answers. The daemon's tests run it as other users.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

func main() { os.Exit(run()) }

// ask is one request and its answer; the tests have the same type.
type ask struct {
	Method, Path, Body string
	Status             int
	Code               string
	Answer             string
}

// run makes the requests on its standard input and prints them with their answers.
func run() int {
	var asks []ask
	if err := json.NewDecoder(os.Stdin).Decode(&asks); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	hc := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", os.Getenv("SOCKET"))
	}}}
	lease := ""
	for i := range asks {
		// {lease} is the lease that this peer took last.
		asks[i].Body = strings.ReplaceAll(asks[i].Body, "{lease}", lease)
		if err := asks[i].make(hc); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if strings.HasSuffix(asks[i].Path, "/lease") {
			var l struct{ Lease string }
			if err := json.Unmarshal([]byte(asks[i].Answer), &l); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			lease = l.Lease
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(asks); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (a *ask) make(hc *http.Client) error {
	req, err := http.NewRequest(a.Method, "http://tgad"+a.Path, strings.NewReader(a.Body))
	if err != nil {
		return err
	}
	req.Header.Set("Tgad-Client", "peer")
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	var p struct{ Code string }
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem") {
		err = json.Unmarshal(raw, &p)
	}
	a.Status, a.Code, a.Answer = resp.StatusCode, p.Code, string(raw)
	return err
}
