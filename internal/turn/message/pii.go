package message

import (
	"net/netip"
	"regexp"
	"strings"
)

// piiRules find personal data by its form, and by its check digits if it has some.
var piiRules = map[string]func(s *subject) []span{
	"email":       emails,
	"phone":       phones,
	"ssn":         ssns,
	"credit_card": cards,
	"ip_address":  addresses,
	"iban":        ibans,
}

var (
	emailForm  = regexp.MustCompile(`[\pL\pN._%+\-]+@[\pL\pN](?:[\pL\pN\-]*[\pL\pN])?(?:\.[\pL\pN](?:[\pL\pN\-]*[\pL\pN])?)*\.\pL{2,}`)
	emailBytes = func() *set {
		s := setOf(decimals + letters + "._%+-@")
		for c := 0x80; c < 0x100; c++ {
			s[c] = true
		}
		return s
	}()
)

func emails(s *subject) (spans []span) {
	if s.at == 0 {
		return nil
	}
	for _, run := range s.runs(emailBytes) {
		part := s.text[run.start:run.end]
		if strings.IndexByte(part, '@') < 0 {
			continue
		}
		for _, m := range all(emailForm, part, -1) {
			spans = append(spans, span{run.start + m.start, run.start + m.end})
		}
	}
	return spans
}

func digitsOf(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if '0' <= s[i] && s[i] <= '9' {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

var (
	localPhone = regexp.MustCompile(`(?:\([0-9]{3}\) ?|[0-9]{3}[\-. ])[0-9]{3}[\-. ][0-9]{4}`)
	plusDigit  = regexp.MustCompile(`\+[1-9]`)
	// numeric are the bytes that numbers consist of, however they are grouped.
	numeric = setOf(decimals + "+ .-()/")
)

// phones finds North American numbers with separators, and any number with a country code (ITU
// E.164: at most 15 digits). Digits without either could be anything.
func phones(s *subject) []span {
	spans := s.within(localPhone, numeric, 10, func(m span) bool { return s.apart(m, "+.") })
	s.within(plusDigit, numeric, 7, func(m span) bool {
		if m.end = phoneEnd(s.text, m.start+1); m.end == 0 || !s.apart(m, "+.") {
			return false
		}
		spans = append(spans, m)
		return true
	})
	return spans
}

// phoneEnd returns where the number whose first digit is at start ends: behind the last row of
// digits with which it has 7 to 15 digits. Two separators may stand between digits.
func phoneEnd(text string, start int) (end int) {
	digits, gap := 0, 0
	for at := start; at < len(text) && gap <= 2 && digits <= 15; at++ {
		switch c := text[at]; {
		case '0' <= c && c <= '9':
			digits, gap = digits+1, 0
			if digits >= 7 && digits <= 15 && (at+1 == len(text) || !isWord(text[at+1])) {
				end = at + 1
			}
		case numeric[c] && c != '+':
			gap++
		default:
			return end
		}
	}
	return end
}

var ssnForm = regexp.MustCompile(`[0-9]{3}(?:-[0-9]{2}-| [0-9]{2} )[0-9]{4}`)

// ssns finds social security numbers of the United States. It leaves out groups of digits that
// were never issued.
func ssns(s *subject) []span {
	return s.within(ssnForm, numeric, 9, func(m span) bool {
		d := digitsOf(s.text[m.start:m.end])
		given := d[:3] != "000" && d[:3] != "666" && d[0] != '9' && d[3:5] != "00" && d[5:] != "0000"
		return given && s.apart(m, "-.")
	})
}

var digitRun = regexp.MustCompile(`[0-9]+(?:[ \-][0-9]+)*`)

// cards finds payment card numbers (ISO/IEC 7812): 12 to 19 digits, grouped or not, of a known
// network and with a valid check digit. Other numbers may stand beside a card number, so it tries
// each sequence of whole groups.
func cards(s *subject) (spans []span) {
	for _, run := range s.within(digitRun, numeric, 12, func(span) bool { return true }) {
		groups := groupsOf(s.text, run)
		for i := 0; i < len(groups); i++ {
			if i == 0 && run.start > 0 && isWord(s.text[run.start-1]) {
				continue // the end of something else
			}
			if j := cardFrom(s.text, groups[i:]); j > 0 {
				spans = append(spans, span{groups[i].start, groups[i+j-1].end})
				i += j - 1
			}
		}
	}
	return spans
}

// groupsOf splits a run into its rows of digits.
func groupsOf(text string, run span) (groups []span) {
	for at := run.start; at < run.end; at++ {
		if text[at] < '0' {
			continue // a space or a dash
		}
		if n := len(groups); n > 0 && groups[n-1].end == at {
			groups[n-1].end++
		} else {
			groups = append(groups, span{at, at + 1})
		}
	}
	return groups
}

// cardFrom returns how many groups, from the first, make a card number; 0 = none.
func cardFrom(text string, groups []span) int {
	digits, best := "", 0
	for j, g := range groups {
		if len(digits)+g.end-g.start > 19 {
			break
		}
		digits += text[g.start:g.end]
		if issued(digits) && luhn(digits) && (g.end == len(text) || !isWord(text[g.end])) {
			best = j + 1
		}
	}
	return best
}

// networks are the first digits that card networks use, and how long their numbers are.
var networks = [...]struct {
	from, to    string
	least, most int // digits
}{
	{"4", "4", 13, 13}, {"4", "4", 16, 16}, {"4", "4", 19, 19}, // Visa
	{"51", "55", 16, 16}, {"2221", "2720", 16, 16}, // Mastercard
	{"34", "34", 15, 15}, {"37", "37", 15, 15}, // American Express
	{"300", "305", 14, 19}, {"36", "36", 14, 19}, {"38", "39", 14, 19}, // Diners Club
	{"6011", "6011", 16, 19}, {"644", "649", 16, 19}, {"65", "65", 16, 19}, // Discover
	{"62", "62", 16, 19},                                                                                   // UnionPay
	{"3528", "3589", 16, 19},                                                                               // JCB
	{"5018", "5018", 12, 19}, {"5020", "5020", 12, 19}, {"5038", "5038", 12, 19}, {"5893", "5893", 12, 19}, // Maestro
	{"6304", "6304", 12, 19}, {"6759", "6759", 12, 19}, {"6761", "6763", 12, 19},
}

// issued reports whether a number has the first digits and the length of a card network.
func issued(d string) bool {
	for _, n := range networks {
		if len(d) >= n.least && len(d) <= n.most && d[:len(n.from)] >= n.from && d[:len(n.to)] <= n.to {
			return true
		}
	}
	return false
}

// luhn checks the last digit (ISO/IEC 7812-1 annex B).
func luhn(d string) bool {
	sum := 0
	for i := range len(d) {
		n := int(d[len(d)-1-i] - '0')
		if i%2 == 1 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}

var (
	ip4Form  = regexp.MustCompile(`[0-9]{1,3}(?:\.[0-9]{1,3}){3}`)
	ip4Bytes = setOf(decimals + ".")
	ip6Bytes = setOf(decimals + "abcdefABCDEF:.")
)

// addresses finds IP addresses of both versions.
func addresses(s *subject) (spans []span) {
	spans = s.within(ip4Form, ip4Bytes, 4, func(m span) bool {
		// 1.2.3.4.5 is a version number, not an address.
		longer := m.end+1 < len(s.text) && s.text[m.end] == '.' && isWord(s.text[m.end+1])
		return !longer && s.apart(m, ".") && isIP(s.text[m.start:m.end])
	})
	if s.colons < 2 {
		return spans
	}
	for _, m := range s.runs(ip6Bytes) {
		for m.end-m.start > 2 && (s.text[m.end-1] == '.' || s.text[m.end-1] == ':' && s.text[m.end-2] != ':') {
			m.end-- // punctuation of the sentence
		}
		found := s.text[m.start:m.end]
		if strings.Count(found, ":") >= 2 && found != "::" && s.apart(m, "") && isIP(found) {
			spans = append(spans, m)
		}
	}
	return spans
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// ibanLengths are the lengths of the IBAN registry (ISO 13616).
var ibanLengths = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29, "BY": 28,
	"CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
	"FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28,
	"IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
	"LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28,
	"NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24,
	"SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26,
	"UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30,
}

// ibans finds account numbers with their country's length and valid check digits, also if spaces
// divide them into groups.
func ibans(s *subject) (spans []span) {
	if s.digits < 2 {
		return nil
	}
	isLetter := func(c byte) bool { return isWord(c|0x20) && c > '9' && c != '_' }
	isDigit := func(c byte) bool { return '0' <= c && c <= '9' }
	text := s.text
	for i := 0; i+15 <= len(text); i++ {
		if !isLetter(text[i]) || !isLetter(text[i+1]) || !isDigit(text[i+2]) || !isDigit(text[i+3]) || i > 0 && isWord(text[i-1]) {
			continue
		}
		want := ibanLengths[strings.ToUpper(text[i:i+2])]
		number, at := make([]byte, 0, 34), i
		for ; at < len(text) && len(number) < want; at++ {
			if c := text[at]; isLetter(c) || isDigit(c) {
				number = append(number, c)
			} else if c != ' ' || text[at-1] == ' ' {
				break
			}
		}
		if want > 0 && len(number) == want && (at == len(text) || !isWord(text[at])) && mod97(number) {
			spans = append(spans, span{i, at})
			i = at - 1
		}
	}
	return spans
}

// mod97 checks the digits of an IBAN (ISO 7064 MOD 97-10).
func mod97(number []byte) bool {
	rest := 0
	for i := range number {
		switch c := number[(i+4)%len(number)]; {
		case c <= '9':
			rest = (rest*10 + int(c-'0')) % 97
		default:
			rest = (rest*100 + int(c|0x20-'a') + 10) % 97
		}
	}
	return rest == 1
}
