package ui

import (
	g "maragu.dev/gomponents"
	"maragu.dev/gomponents/html"
)

// h makes elements, attributes and texts. It is a variable and not a package, so that its functions are not
// inlined: each use of an inlined element would add a kilobyte to the program.
var h = struct {
	A, Article, Body, Br, Button, Code, Dd, Details, Div, Dl, Dt, Footer                                    func(children ...g.Node) g.Node
	Form, H1, H2, H3, HTML, Head, Header, Input, Label, Li, Link, Main                                      func(children ...g.Node) g.Node
	Meta, Nav, Ol, Option, P, Pre, Script, Section, Select, Small, Span, Strong                             func(children ...g.Node) g.Node
	Summary, TBody, THead, Table, Td, Th, Time, TitleEl, Tr, Ul                                             func(children ...g.Node) g.Node
	Action, AutoComplete, Charset, Class, ColSpan, Content, DateTime, For, FormAction, FormMethod, Href, ID func(v string) g.Node
	Lang, MaxLength, Method, MinLength, Name, Placeholder, Rel, Role, Scope, Src, TabIndex, Type            func(v string) g.Node
	Value                                                                                                   func(v string) g.Node
	Checked, Defer, Required, Selected                                                                      func() g.Node
	Aria, Data                                                                                              func(name, v string) g.Node
	Doctype                                                                                                 func(sibling g.Node) g.Node
	Text                                                                                                    func(t string) g.Node
	Textf                                                                                                   func(format string, a ...any) g.Node
}{
	A: element("a"), Article: element("article"), Body: element("body"), Br: element("br"), Button: element("button"), Code: element("code"),
	Dd: element("dd"), Details: element("details"), Div: element("div"), Dl: element("dl"), Dt: element("dt"), Footer: element("footer"),
	Form: element("form"), H1: element("h1"), H2: element("h2"), H3: element("h3"), HTML: element("html"), Head: element("head"),
	Header: element("header"), Input: element("input"), Label: element("label"), Li: element("li"), Link: element("link"), Main: element("main"),
	Meta: element("meta"), Nav: element("nav"), Ol: element("ol"), Option: element("option"), P: element("p"), Pre: element("pre"),
	Script: element("script"), Section: element("section"), Select: element("select"), Small: element("small"), Span: element("span"), Strong: element("strong"),
	Summary: element("summary"), TBody: element("tbody"), THead: element("thead"), Table: element("table"), Td: element("td"), Th: element("th"),
	Time: element("time"), TitleEl: element("title"), Tr: element("tr"), Ul: element("ul"),
	Action: attribute("action"), AutoComplete: attribute("autocomplete"), Charset: attribute("charset"), Class: attribute("class"), ColSpan: attribute("colspan"), Content: attribute("content"),
	DateTime: attribute("datetime"), For: attribute("for"), FormAction: attribute("formaction"), FormMethod: attribute("formmethod"), Href: attribute("href"), ID: attribute("id"),
	Lang: attribute("lang"), MaxLength: attribute("maxlength"), Method: attribute("method"), MinLength: attribute("minlength"), Name: attribute("name"), Placeholder: attribute("placeholder"),
	Rel: attribute("rel"), Role: attribute("role"), Scope: attribute("scope"), Src: attribute("src"), TabIndex: attribute("tabindex"), Type: attribute("type"),
	Value:   attribute("value"),
	Checked: flag("checked"), Defer: flag("defer"), Required: flag("required"), Selected: flag("selected"),
	Aria: html.Aria, Data: html.Data, Doctype: html.Doctype, Text: g.Text, Textf: g.Textf,
}

func element(name string) func(children ...g.Node) g.Node {
	return func(children ...g.Node) g.Node { return g.El(name, children...) }
}

func attribute(name string) func(v string) g.Node {
	return func(v string) g.Node { return g.Attr(name, v) }
}

func flag(name string) func() g.Node {
	return func() g.Node { return g.Attr(name) }
}
