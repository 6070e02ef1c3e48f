package main

import (
	"errors"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

type canonicalFile struct {
	Description string         `json:"description"`
	Accepted    []acceptedText `json:"accepted"`
	Refused     []refusedText  `json:"refused"`
}

type acceptedText struct {
	Name      string `json:"name"`
	Input     string `json:"input"`
	Canonical string `json:"canonical"`
	SHA256    string `json:"sha256"`
}

type refusedText struct {
	Name    string `json:"name"`
	Input   []byte `json:"input_base64"` // not all of it is text
	Code    string `json:"code"`
	Pointer string `json:"pointer"`
}

func canonicalJSON() canonicalFile {
	f := canonicalFile{Description: "accepted: JSON texts with their canonical form (RFC 8785) and its SHA-256. " +
		"refused: texts that are not taken because they are not JSON or would lose something in canonical form, with the error code and the JSON Pointer to the place. " +
		"A number is accepted when it equals, as a decimal, what ECMAScript prints for its double."}
	for _, c := range acceptedTexts {
		canonical := must(tga.Canonicalize([]byte(c[1]), tga.Limits{}))
		f.Accepted = append(f.Accepted, acceptedText{c[0], c[1], string(canonical), tga.Sum(canonical).String()})
	}
	for _, c := range refusedTexts {
		var e *tga.Error
		if err := tga.Gate([]byte(c[1]), tga.Limits{}); !errors.As(err, &e) {
			panic(c[0] + " is not refused")
		}
		f.Refused = append(f.Refused, refusedText{c[0], []byte(c[1]), string(e.Code), e.Pointer})
	}
	return f
}

var acceptedTexts = [][2]string{
	{"empty object", "{}"},
	{"whitespace", " {\t\"a\" :\r\n[ 1 , 2 ] } "},
	{"top-level scalar", ` "x" `},
	{"literals", "[true,false,null]"},
	{"keys in byte order", `{"b":1,"a":2,"B":3,"":4,"aa":5}`},
	{"keys in UTF-16 order", "{\"\u20ac\":1,\"\\r\":2,\"\ufb33\":3,\"1\":4,\"\U0001f600\":5,\"\u0080\":6,\"\u00f6\":7}"},
	{"escaped keys in UTF-16 order", `{"\ufb33":1,"\ud83d\ude00":2,"\u0061":3}`},
	{"nested objects are sorted, arrays are not", `{"z":[{"b":1,"a":2},3],"y":{"d":4,"c":5}}`},
	{"short escapes", `"\b\f\n\r\t\"\\\/"`},
	{"control characters", `"\u0000\u0001\u0008\u001F\u007f"`},
	{"escapes that are not needed", `"\u0041\u00e9\u20AC\ud83d\ude00\u2028"`},
	{"characters that stay as they are", "\"<>&'\u2028\u2029\u007f\ufffd\ufffe\""},
	{"zeros", "[0,-0,0.0,-0.0,0e5,0E-7]"},
	{"integers", "[1,-1,10,999999999999999,1000000000000000]"},
	{"2^53 and its neighbours", "[9007199254740991,9007199254740992,9007199254740994,-9007199254740991]"},
	{"other spellings", "[1.0,1e2,1E+2,100e-2,0.10,-5.500]"},
	{"where exponents begin", "[1e20,100000000000000000000,999999999999999900000,1e21,1000000000000000000000,1e-6,0.000001,1e-7,0.0000001]"},
	{"shortest digits", "[0.1,0.2,0.30000000000000004,333333333.3333333,1e23,1.2345678901234567]"},
	{"smallest and largest", "[5e-324,-5e-324,2.2250738585072014e-308,1.7976931348623157e308,-1.7976931348623157e+308]"},
	{"depth 128", strings.Repeat("[", 128) + strings.Repeat("]", 128)},
}

var refusedTexts = [][2]string{
	{"nothing", ""},
	{"byte order mark", "\ufeff{}"},
	{"two values", "{} {}"},
	{"unterminated array", `{"a":[1`},
	{"trailing comma in an array", "[1,]"},
	{"trailing comma in an object", `{"a":1,}`},
	{"name without quotes", "{a:1}"},
	{"literal in capitals", `[True]`},
	{"NaN", "[NaN]"},
	{"leading zero", `{"n":01}`},
	{"plus sign", `{"n":+1}`},
	{"no digit after the point", `{"n":1.}`},
	{"no digit before the point", `{"n":.5}`},
	{"underscore", `{"n":1_0}`},
	{"hexadecimal", `{"n":0x10}`},
	{"empty exponent", `{"n":1e}`},
	{"2^53 + 1", `{"a":[0,9007199254740993]}`},
	{"2^64, whose double prints with other digits", `[18446744073709551616]`},
	{"too many digits", `[0.1000000000000000055]`},
	{"overflow", `{"big":1e400}`},
	{"underflow", `[1e-400]`},
	{"rounded to the smallest", `[4.9406564584124654e-324]`},
	{"rounded to the largest", `[1.7976931348623158e308]`},
	{"repeated name", `{"x":{"a":1,"b":2,"a":3}}`},
	{"repeated name once escapes are undone", `{"a":1,"\u0061":2}`},
	{"repeated empty name", `{"":1,"":2}`},
	{"repeated name with / and ~", `{"a/b~c":1,"a/b~c":2}`},
	{"invalid UTF-8", "[\"ok\",\"\xff\"]"},
	{"overlong UTF-8", "[\"\xc0\x80\"]"},
	{"surrogate in UTF-8", "[\"\xed\xa0\x80\"]"},
	{"lone high surrogate", `{"s":"\ud83d"}`},
	{"lone low surrogate", `{"s":"\ude00"}`},
	{"surrogates the wrong way round", `{"s":"\ude00\ud83d"}`},
	{"lone surrogate in a name", `{"o":{"\ud83d":1}}`},
	{"control character", "[\"a\nb\"]"},
	{"unknown escape", `["\x"]`},
	{"escape in capitals", `["\U0041"]`},
	{"depth 129", strings.Repeat("[", 129) + strings.Repeat("]", 129)},
}
