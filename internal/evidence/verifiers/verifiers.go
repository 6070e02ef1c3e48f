// Package verifiers holds two programs that check evidence and are not tgad: a Python script and
// a web page. They share no code with each other or with package bundle, and follow the words of
// docs/FORMAT.md, section 11. An auditor who trusts none of our programs can read one of them and
// use it.
//
// The script needs Python 3.8 and its standard library. The page needs a browser whose WebCrypto
// has Ed25519, and no network: its content security policy forbids every load, and names its scripts
// by digest. It shows the content of a file as text and never as HTML, because the file may be hostile.
//
// # Invariants
//
//	equal    all three programs give one verdict on one file, in the same words   TestVerdictsAreEqual
//	needed   the tests notice it when a check is taken out of either program      TestEveryCheckIsNeeded
//	alone    the page loads nothing, sends nothing, and makes no HTML of a value  TestPageIsAlone
//	shown    the page shows the verdict first, and nothing of a refused file      TestPageShowsVerdictFirst
package verifiers

import _ "embed"

// Python is verify.py, the script.
//
//go:embed verify.py
var Python []byte

// Page is verify.html, the page.
//
//go:embed verify.html
var Page []byte
