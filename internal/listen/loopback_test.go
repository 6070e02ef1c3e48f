package listen

import "testing"

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost:80": true, "127.0.0.1": true, "127.9.9.9:8080": true, "::1": true, "[::1]": true, "[::1]:443": true,
		"::ffff:127.0.0.1": true, "": false, ":80": false, "0.0.0.0": false, "[::]:80": false, "192.168.0.1:80": false, "localhost.": false,
		"localhost.example.org": false, "127.0.0.1.example.org:80": false, "2130706433": false, "0x7f.1": false, "[": false,
	} {
		if got := Loopback(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
