package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ranElsewhere are the lines of the page that another test runs, or the reason why none does.
var ranElsewhere = map[string]string{
	"make release KEY=release.pem": "TestReleaseIsReproducible, by the program that the target starts",

	"kubectl create secret generic tgad-admin --from-file=password=ADMIN":                    "needs a cluster",
	"kubectl create secret generic tgad-store --from-file=password=GATEWAY":                  "likewise",
	"kubectl create secret generic tgad-gateway-keys --from-file=ann=KEY":                    "likewise",
	"kubectl apply -f packaging/kubernetes/config.yaml -f packaging/kubernetes/migrate.yaml": "likewise; TestManifestsFitTogether reads the files",
	"kubectl wait --for=condition=complete job/tgad-migrate":                                 "likewise",
	"kubectl apply -f packaging/kubernetes/fleet.yaml":                                       "likewise; TestPodRuns runs a pod of it",
}

// TestInstallPageRuns runs the lines of docs/INSTALL.md in their order, on a machine that has the release, but for what
// the reader fills in.
func TestInstallPageRuns(t *testing.T) {
	page := read(t, "../../docs/INSTALL.md")
	m := boot(t)
	files, err := os.ReadDir(made.r.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		m.take(filepath.Join(made.r.out, f.Name()), "opt/dist/"+f.Name())
	}
	deb, rpm := filepath.Base(made.r.file(".deb")), filepath.Base(made.r.file(".rpm"))
	// The reader says VERSION and USER, and has a registry; rpm finds on this Debian no package of what it needs.
	filled := strings.NewReplacer("tgad_VERSION_amd64.deb", deb, "rpm -i tgad-VERSION-1.x86_64.rpm", "rpm -i --nodeps "+rpm, "tgad-VERSION-1.x86_64.rpm", rpm, "VERSION", made.r.number(),
		"docker://registry.example/tgad", "oci:/opt/registry", "-aG tgad USER", "-aG tgad daemon")
	lines := 0
	for _, block := range regexp.MustCompile("(?ms)^```\n(.*?)^```").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			if ranElsewhere[line] != "" {
				continue
			}
			lines++
			packaged := strings.HasPrefix(line, "dpkg -i ") || strings.HasPrefix(line, "rpm -i ")
			if strings.HasPrefix(line, "rpm -i ") {
				m.do("dpkg -P tgad") // the page has both packages; a machine has one
			}
			m.do("cd /opt/dist && " + filled.Replace(line))
			if strings.HasPrefix(line, "systemctl") {
				m.wait("the service is up", func() error { _, err := m.try("systemctl is-active tgad.service"); return err })
			}
			if packaged {
				m.installed()
			}
			if strings.HasPrefix(line, "rpm -i ") {
				score := m.do("systemd-analyze security --no-pager tgad.service | sed -n 's/.*exposure level for tgad.service: \\([0-9.]*\\) .*/\\1/p'")
				if !strings.Contains(page, "gives the service "+score+" of 10") {
					t.Errorf("systemd-analyze security gives %s, and the page says something else", score)
				}
				m.do("rpm -e tgad && dpkg -i /opt/dist/" + deb)
			}
		}
	}
	if lines < 12 {
		t.Errorf("only %d lines were run", lines)
	}
	m.do("test -e /opt/registry/index.json")
	m.is("ls -d /var/lib/tgad /var/log/tgad 2>/dev/null || true", "")
	for line := range ranElsewhere {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page does not have %s any more", line)
		}
	}
}
