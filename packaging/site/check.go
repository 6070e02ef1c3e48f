package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/net/html"
)

// check follows every link of a site that was made, and returns those that lead nowhere: to no file, or to no
// heading of the page. Links to other machines are not followed.
func check(dir string) error {
	names, err := files(dir)
	if err != nil {
		return err
	}
	ids, links := map[string]map[string]bool{}, map[string][]string{}
	for _, name := range names {
		ids[name], links[name], err = marks(name)
		if err != nil {
			return err
		}
	}
	var broken []error
	for _, name := range names {
		for _, link := range links[name] {
			to, err := url.Parse(link)
			if err != nil || to.Scheme != "" {
				broken = append(broken, err)
				continue
			}
			at := name
			if to.Path != "" {
				at = filepath.Join(filepath.Dir(name), filepath.FromSlash(to.Path))
			}
			if _, err := os.Stat(at); err != nil {
				broken = append(broken, fmt.Errorf("%s links to %s: %w", name, link, err))
			} else if to.Fragment != "" && !ids[at][to.Fragment] {
				broken = append(broken, fmt.Errorf("%s links to %s, a heading that is not there", name, link))
			}
		}
	}
	return errors.Join(broken...)
}

// marks returns the ids of a page, and what it links to or loads.
func marks(name string) (map[string]bool, []string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	doc, err := html.Parse(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	ids, links := map[string]bool{}, []string(nil)
	for n := range doc.Descendants() {
		for _, a := range n.Attr {
			switch {
			case a.Key == "id":
				ids[a.Val] = true
			case (a.Key == "href" || a.Key == "src") && strings.TrimSpace(a.Val) != "":
				links = append(links, a.Val)
			}
		}
	}
	return ids, links, nil
}
