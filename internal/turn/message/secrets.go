package message

import (
	"math"
	"regexp"
	"slices"
	"strings"
)

// assignment is the rule for a value that only its name identifies as secret.
const assignment = "secret:assignment"

// secretRules are the forms that issuers publish so that their keys can be found. The rule for a
// value that only its name identifies stands last: the other rules know more about the value.
var secretRules = []rule{
	{"secret:private_key", "private_key", privateKeys},
	secret("aws_access_key", `\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b`, "AKIA", "ASIA", "ABIA", "ACCA"),
	secret("github_token", `\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})`, "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
	secret("gitlab_token", `\bglpat-[A-Za-z0-9_\-]{20,}`, "glpat-"),
	secret("slack_token", `\b(?:xox[abeoprs]|xapp)-[A-Za-z0-9\-]{10,}`, "xox", "xapp-"),
	secret("slack_webhook", `https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_+\-]{16,}`, "hooks.slack.com"),
	secret("stripe_key", `\b(?:(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{16,})`, "_live_", "_test_", "whsec_"),
	secret("anthropic_key", `\bsk-ant-[A-Za-z0-9_\-]{20,}`, "sk-ant-"),
	secret("openai_key", `\bsk-[A-Za-z0-9_\-]{20,}`, "sk-"),
	secret("google_key", `\bAIza[A-Za-z0-9_\-]{35}`, "AIza"),
	secret("npm_token", `\bnpm_[A-Za-z0-9]{36}\b`, "npm_"),
	secret("pypi_token", `\bpypi-AgE[A-Za-z0-9_\-]{50,}`, "pypi-AgE"),
	secret("huggingface_token", `\bhf_[A-Za-z0-9]{30,}\b`, "hf_"),
	secret("sendgrid_key", `\bSG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}`, "SG."),
	secret("jwt", `\beyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*`, "eyJ"),
	{"secret:authorization", "authorization", authorizations},
	{"secret:url_password", "url_password", urlPasswords},
	{assignment, "assignment", assignments},
}

// secret makes a rule of a pattern. A text that contains none of the marks is not searched.
func secret(kind, pattern string, marks ...string) rule {
	re := regexp.MustCompile(pattern)
	return rule{"secret:" + kind, kind, func(s *subject) []span {
		for _, m := range marks {
			if strings.Contains(s.text, m) {
				return all(re, s.text, -1)
			}
		}
		return nil
	}}
}

// after finds words, which must be in lower case. Behind each word it matches a pattern that is
// anchored there, and returns the pattern's first group if keep agrees. The pattern must not
// reach beyond the next word.
func after(s *subject, words []string, re *regexp.Regexp, keep func(at int, group string) bool) (spans []span) {
	low := s.lower()
	for _, w := range words {
		for at := 0; ; {
			i := strings.Index(low[at:], w)
			if i < 0 {
				break
			}
			at += i + len(w)
			if m := re.FindStringSubmatchIndex(s.text[at:]); m != nil && keep(at, s.text[at+m[2]:at+m[3]]) {
				spans = append(spans, span{at + m[2], at + m[3]})
			}
		}
	}
	return spans
}

var (
	authorizationForm = regexp.MustCompile(`(?i)^["']?\s*[:=]\s*["']?(?:bearer|basic|token)\s+([A-Za-z0-9._~+/\-]{8,}=*)`)
	urlForm           = regexp.MustCompile(`^[^\s/:@"']*:([^\s/@"'\[]+)@`)
)

func authorizations(s *subject) []span {
	return after(s, []string{"authorization"}, authorizationForm, func(int, string) bool { return true })
}

func urlPasswords(s *subject) []span {
	if s.colons < 2 || s.at == 0 {
		return nil
	}
	return after(s, []string{"://"}, urlForm, func(at int, _ string) bool {
		return at > len("://") && isWord(s.text[at-len("://")-1])
	})
}

var privateKeyBegin = regexp.MustCompile(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`)

// privateKeys finds PEM and PGP private keys. A key without an end mark extends to the end of the
// text: a key that is cut off is still a key.
func privateKeys(s *subject) (spans []span) {
	text := s.text
	if !strings.Contains(text, "PRIVATE KEY") {
		return nil
	}
	for at := 0; ; {
		m := privateKeyBegin.FindStringIndex(text[at:])
		if m == nil {
			return spans
		}
		begin, body := at+m[0], at+m[1]
		end := len(text)
		if i := strings.Index(text[body:], "-----END "); i >= 0 {
			tail := body + i + len("-----END ")
			if i := strings.Index(text[tail:], "-----"); i >= 0 {
				end = tail + i + len("-----")
			}
		}
		spans = append(spans, span{begin, end})
		at = end
	}
}

// secretWords end the names of secret values. pageWords occur in names that only sound secret,
// such as a token for the next page of a listing.
var (
	secretWords = []string{
		"password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "api_key", "api-key", "accesskey", "access_key", "access-key",
		"privatekey", "private_key", "private-key", "signingkey", "signing_key", "signing-key", "encryptionkey", "encryption_key", "encryption-key",
		"credential", "credentials",
	}
	pageWords = []string{"page", "next", "continu", "sync", "cursor", "csrf"}
	nameBytes = setOf(decimals + letters + "_-.")
)

// secretName reports whether a name says that its value is secret.
func secretName(name string) bool {
	low := lowerASCII(name)
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.HasSuffix(low, w) }) && !pageName(low)
}

func pageName(low string) bool {
	return slices.ContainsFunc(pageWords, func(w string) bool { return strings.Contains(low, w) })
}

const (
	gaps     = " \t\r\n"
	quotes   = "\"'`"
	valueEnd = gaps + quotes + ",;&<>()[]{}"
)

// assignments finds NAME = value where the name says that the value is secret and the value
// looks made by a machine.
func assignments(s *subject) (spans []span) {
	if s.colons == 0 && s.equals == 0 {
		return nil
	}
	low := s.lower()
	for _, w := range secretWords {
		end := 0 // of the current value, which may itself contain such words
		for at := 0; ; {
			i := strings.Index(low[at:], w)
			if i < 0 {
				break
			}
			at += i + len(w)
			from := valueAfter(s.text, at)
			if from < 0 {
				continue
			}
			if end < from {
				end = len(s.text)
				if n := strings.IndexAny(s.text[from:], valueEnd); n >= 0 {
					end = from + n
				}
			}
			if strong(s.text[from:end]) && !pageName(low[nameBefore(s.text, at):at]) {
				spans = append(spans, span{from, end})
				at = end
			}
		}
	}
	return spans
}

// valueAfter returns where the value of the name that ends at at begins; -1 if no value is
// assigned to the name.
func valueAfter(text string, at int) int {
	skip := func(set string, most int) {
		for ; at < len(text) && most != 0 && strings.IndexByte(set, text[at]) >= 0; at++ {
			most--
		}
	}
	skip(quotes, 1)
	skip(gaps, -1)
	before := at
	skip(":=", 1)
	if at == before {
		return -1
	}
	if text[before] == '=' {
		skip(">", 1)
	}
	skip(gaps, -1)
	skip(quotes, 1)
	return at
}

// nameBefore returns where the name that ends at at begins.
func nameBefore(text string, at int) int {
	for at > 0 && nameBytes[text[at-1]] {
		at--
	}
	return at
}

// strong reports whether a value is too irregular to be a word: 8 bytes or more with
// letters and digits, or 20 or more of letters alone, and enough different ones.
func strong(s string) bool {
	if len(s) < 8 || strings.HasPrefix(s, "[REDACTED:") {
		return false
	}
	s = s[:min(len(s), 256)] // that much is enough to judge by
	var count [256]int
	letters, digits := false, false
	for i := range len(s) {
		count[s[i]]++
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digits = true
		case 'a' <= c|0x20 && c|0x20 <= 'z':
			letters = true
		case c == ' ':
			return false // a sentence
		}
	}
	bits := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(s))
			bits -= p * math.Log2(p)
		}
	}
	if letters && digits {
		return bits >= 2.5
	}
	return letters && len(s) >= 20 && bits >= 3.5
}
