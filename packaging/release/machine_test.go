package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// machine is a system of its own with systemd as its first process: this machine's files under an overlay, so
// that what is installed in it is gone with the test.
type machine struct {
	t      *testing.T
	root   string
	leader string // process id of its systemd
}

func boot(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this starts a machine of its own, which takes root")
	}
	box := t.TempDir()
	run(t, "mount", "-t", "tmpfs", "-o", "size=3g", "tgad-test", box)
	unmount := func(dir string) {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	}
	t.Cleanup(func() { unmount(box) })
	m := &machine{t: t, root: filepath.Join(box, "root")}
	for _, dir := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(box, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "mount", "-t", "overlay", "overlay", "-o", "lowerdir=/,upperdir="+box+"/upper,workdir="+box+"/work", m.root)
	t.Cleanup(func() { unmount(m.root) })
	// What keeps an image of a container from starting services, and this machine's name.
	for _, name := range []string{"usr/sbin/policy-rc.d", "etc/machine-id"} {
		if err := os.Remove(filepath.Join(m.root, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("systemd-nspawn", "-D", m.root, "--boot", "--register=no", "--keep-unit", "--private-network", "--quiet",
		"--console=pipe", "--link-journal=no", "--resolv-conf=off", "--timezone=off", fmt.Sprintf("--machine=tgad-%d", os.Getpid()), "systemd.unit=basic.target")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	m.wait("the machine starts", func() error {
		out, err := exec.Command("pgrep", "-x", "systemd", "-P", fmt.Sprint(cmd.Process.Pid)).Output()
		if err != nil {
			return err
		}
		m.leader = strings.TrimSpace(string(out))
		_, err = m.try("systemctl is-active basic.target")
		return err
	})
	return m
}

func (m *machine) wait(what string, f func() error) {
	m.t.Helper()
	var err error
	for range 600 {
		if err = f(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	journal, _ := m.try("journalctl --no-pager -n 60 -u 'tgad*'")
	m.t.Fatalf("%s: %v\n%s", what, err, journal)
}

// try runs a line of shell in the machine, as its root.
func (m *machine) try(line string) (string, error) {
	cmd := exec.Command("nsenter", "-t", m.leader, "-m", "-u", "-i", "-n", "-p", "-C", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", line)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func (m *machine) do(line string) string {
	m.t.Helper()
	out, err := m.try(line)
	if err != nil {
		journal, _ := m.try("journalctl --no-pager -n 60 -u 'tgad*'")
		m.t.Fatalf("%v\n%s", err, journal)
	}
	return out
}

// is fails the test if a line of shell prints something else.
func (m *machine) is(line, want string) {
	m.t.Helper()
	if got := m.do(line); got != want {
		m.t.Errorf("%s prints %q, want %q", line, got, want)
	}
}

// take copies a file of the release into the machine.
func (m *machine) take(from, to string) {
	m.t.Helper()
	run(m.t, "install", "-D", "-m", "0755", from, filepath.Join(m.root, to))
}

// call makes a governed call as the user daemon, who is in the group of the socket. It asks again while a daemon
// that has just started looks at unfinished calls; where the socket refused it, it would not know that.
const call = `runuser -u daemon -- tgad call payments charge '{"account":"acme","amount":1}' --reconnect 30s --key `

// configure adds to the package's configuration a tool server that the daemon starts in its sandbox, and roles by
// user.
const configure = `cat >> /etc/tgad/tgad.toml <<END
[[role]]
uid = [$(id -u tgad)]
namespace = "*"
verbs = ["read", "append", "decide", "admin"]
[[role]]
uid = [$(id -u daemon)]
namespace = "default"
verbs = ["read", "append"]
[[server]]
id = "payments"
type = "mcp-command"
command = ["/usr/local/bin/tgad-lab", "payments", "--journal", "/run/tgad/journal"]
[[tool]]
server = "payments"
name = "charge"
licence = "dedupe_key"
window = "24h"
[[rule]]
decision = "APPROVE"
END
usermod -aG tgad daemon
systemctl restart tgad.service`

// TestPackagesLiveOnAMachine installs each package on a machine with systemd, makes calls through it while it is
// upgraded, killed and rotated, removes it, purges it, and installs it again.
func TestPackagesLiveOnAMachine(t *testing.T) {
	next := another(t, func(clone string) {
		run(t, "git", "-C", clone, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "--allow-empty", "-m", "next")
	})
	for _, kind := range []struct{ suffix, install, upgrade, remove, purge string }{
		{".deb", "dpkg -i /opt/old.deb", "dpkg -i /opt/new.deb", "dpkg -r tgad", "dpkg -P tgad"},
		{".rpm", "rpm -i --nodeps /opt/old.rpm", "rpm -U --nodeps /opt/new.rpm", "rpm -e tgad", ""},
	} {
		t.Run(kind.suffix[1:], func(t *testing.T) {
			m := boot(t)
			m.take(made.r.file(kind.suffix), "opt/old"+kind.suffix)
			m.take(next.file(kind.suffix), "opt/new"+kind.suffix)
			m.take(filepath.Join(made.unpacked, "tgad-lab"), "usr/local/bin/tgad-lab")

			m.do(kind.install)
			store := m.installed()
			m.do(configure)
			m.do(call + "first")
			m.reloaded()
			m.upgrade(kind.upgrade, next.version)
			m.killed()
			m.audited()

			m.do(kind.remove)
			m.removed(store)
			if kind.purge != "" {
				m.do(kind.purge)
				m.removed(store)
				m.is("ls -d /etc/tgad 2>/dev/null || true", "")
			}

			// The store that stayed is found again: a key that was used stays used.
			charges := m.do("grep -c '\"op\":\"charge\"' /opt/journal")
			m.do(kind.install)
			if again := m.installed(); again != store {
				t.Errorf("installed again, the store is %s and was %s", again, store)
			}
			m.do("grep -q payments /etc/tgad/tgad.toml || { " + configure + "; }")
			m.do("cp -p /opt/journal /run/tgad/journal && systemctl restart tgad.service")
			m.do(call + "first")
			m.is("grep -c '\"op\":\"charge\"' /run/tgad/journal", charges)
			m.do("runuser -u tgad -- tgad verify --data /var/lib/tgad")
		})
	}
}

// installed looks at what an installation leaves, and returns the store's id.
func (m *machine) installed() string {
	m.t.Helper()
	m.wait("the service starts", func() error { _, err := m.try("systemctl is-active tgad.service"); return err })
	m.is("systemctl is-active tgad.socket tgad.service | uniq", "active")
	m.is("systemctl is-enabled tgad.socket tgad.service | uniq", "enabled")
	m.is("systemctl is-enabled tgad-audit.service || true", "disabled")
	m.is("stat -c '%a %U:%G' /run/tgad/tgad.sock /run/tgad /var/lib/tgad /etc/tgad/tgad.toml | tr '\n' ' '", "660 tgad:tgad 750 tgad:tgad 700 tgad:tgad 640 root:tgad")
	m.do("runuser -u tgad -- tgad ready")
	// Whether it is the store's own, removed asks, when no daemon has the store.
	store := m.do(`sed -n 's/^id = "\([0-9a-f-]*\)"$/\1/p' /etc/tgad/tgad.toml | head -n 1`)
	if len(store) != 36 {
		m.t.Errorf("the configuration names the store %q", store)
	}
	// Whoever is not in the group does not reach the socket.
	if out, err := m.try("runuser -u nobody -- tgad ready"); err == nil {
		m.t.Errorf("nobody reaches the daemon: %s", out)
	}
	m.is("systemd-analyze verify /usr/lib/systemd/system/tgad.service /usr/lib/systemd/system/tgad.socket /usr/lib/systemd/system/tgad-audit.service 2>&1 | grep tgad || true", "")
	for _, unit := range []string{"tgad.service", "tgad-audit.service"} {
		m.do("systemd-analyze security --threshold=20 " + unit)
	}
	m.is("systemctl show -p PrivateUsers -p MemoryDenyWriteExecute tgad.service | sort | tr '\n' ' '", "MemoryDenyWriteExecute=no PrivateUsers=no")
	return store
}

// reloaded changes the configuration and has systemd reload the service, without /bin/kill too: the same process takes
// the new one, and refuses one with a mistake.
func (m *machine) reloaded() {
	m.t.Helper()
	const metric = `runuser -u tgad -- curl -s -H 'Tgad-Client: test' --unix-socket /run/tgad/tgad.sock http://tgad/metrics | sed -n 's/^tgad_config_reload_success //p'`
	was := m.do("systemctl show -p MainPID --value tgad.service")
	m.do("cp -p /etc/tgad/tgad.toml /opt/good.toml && mv /usr/bin/kill /opt/kill && sed -i 's/^decision = \"APPROVE\"/decision = \"DENY\"/' /etc/tgad/tgad.toml && systemctl reload tgad.service")
	m.wait("a denial holds", func() error {
		if out, err := m.try(call + "denied-$(date +%N)"); err == nil {
			return fmt.Errorf("a call is made: %s", out)
		}
		return nil
	})
	m.do("echo mistake >> /etc/tgad/tgad.toml && systemctl reload tgad.service")
	m.wait("a mistake is refused", func() error {
		if out := m.do(metric); out != "0" {
			return fmt.Errorf("the metric is %s", out)
		}
		return nil
	})
	m.do("cp -p /opt/good.toml /etc/tgad/tgad.toml && mv /opt/kill /usr/bin/kill && systemctl reload tgad.service")
	m.wait("the file is right", func() error { _, err := m.try(call + "reloaded"); return err })
	if now := m.do("systemctl show -p MainPID --value tgad.service"); now != was {
		m.t.Errorf("the daemon after three reloads is process %s, and was %s", now, was)
	}
}

// upgrade upgrades the package while calls are made one after the other: none fails, and each is made once.
func (m *machine) upgrade(command, version string) {
	m.t.Helper()
	was := m.do("systemctl show -p MainPID --value tgad.service")
	done, connected := make(chan error), make(chan string)
	go func() {
		// 7 is what curl says of a socket that refuses or is not there.
		out, err := m.try("n=0; until [ -e /run/upgraded ]; do n=$((n+1)); r=0; runuser -u tgad -- curl -s -o /dev/null -m 60 -H 'Tgad-Client: test' --unix-socket /run/tgad/tgad.sock http://tgad/livez || r=$?; [ $r != 7 ] || exit 7; done; [ $n -gt 2 ]")
		if err != nil {
			out = err.Error()
		}
		connected <- out
	}()
	go func() {
		_, err := m.try("i=0; until [ -e /run/upgraded ]; do i=$((i+1)); " + call + "upgrade-$i >/dev/null || exit 1; done; echo $i > /run/calls; " + call + "last")
		done <- err
	}()
	m.wait("calls are made", func() error { _, err := m.try("grep -q upgrade-2 /run/tgad/journal"); return err })
	m.do(command)
	m.do("touch /run/upgraded")
	if err := <-done; err != nil {
		m.t.Errorf("a call failed during the upgrade: %v", err)
	}
	if out := <-connected; out != "" {
		m.t.Errorf("the socket refused a connection during the upgrade, or was hardly tried: %s", out)
	}
	if now := m.do("systemctl show -p MainPID --value tgad.service"); now == was || now == "0" {
		m.t.Errorf("the daemon after the upgrade is process %s, and was %s", now, was)
	}
	if said := m.do("$(readlink /proc/$(systemctl show -p MainPID --value tgad.service)/exe) version"); !strings.HasPrefix(said, "tgad "+version+" ") {
		m.t.Errorf("the daemon that runs says %s", said)
	}
	// first, reloaded, last, and those between.
	m.is("echo $(($(cat /run/calls) + 3))", m.do("grep -c '\"op\":\"charge\"' /run/tgad/journal"))
	m.is("grep '\"op\":\"charge\"' /run/tgad/journal | sed 's/.*\"key\":\"\\([^\"]*\\)\".*/\\1/' | sort | uniq -d", "")
}

// killed kills the daemon: systemd starts it again, and a caller that comes meanwhile waits.
func (m *machine) killed() {
	m.t.Helper()
	m.do("systemctl kill --kill-whom=main -s KILL tgad.service")
	m.do(call + "after-kill")
	m.is("systemctl show -p NRestarts --value tgad.service", "1")
}

// audited keeps the audit stream over a rotation and kills of it: each record is there, in the order of the log.
func (m *machine) audited() {
	m.t.Helper()
	const ids = ` | sed -n 's/.*"id":"\([^"]*\)".*/\1/p'`
	all := func() string { return m.do("runuser -u tgad -- tgad tail --format cloudevents" + ids) }
	kept := func() string {
		return m.do("cat /var/log/tgad/audit.ndjson.1 /var/log/tgad/audit.ndjson 2>/dev/null" + ids + " | awk '!seen[$0]++'")
	}
	m.do("systemctl enable --now tgad-audit.service")
	same := func() error {
		if a, k := all(), kept(); a != k {
			return fmt.Errorf("the log has %d records, the stream %d", strings.Count(a, "\n")+1, strings.Count(k, "\n")+1)
		}
		return nil
	}
	m.wait("the stream has the log", same)
	m.do(call + "audit-1; systemctl kill -s KILL tgad-audit.service; printf '{\"half' >> /var/log/tgad/audit.ndjson; " + call + "audit-2")
	m.wait("the stream goes on after a kill", same)
	m.do("logrotate -f /etc/logrotate.d/tgad && " + call + "audit-3")
	m.wait("the stream goes on after a rotation", same)
	m.do("test -s /var/log/tgad/audit.ndjson.1 && test -s /var/log/tgad/audit.ndjson")
	m.do("systemctl restart tgad.service && " + call + "audit-4")
	m.wait("the stream goes on after a restart of the daemon", same)
	m.is("cat /var/log/tgad/audit.ndjson.1 /var/log/tgad/audit.ndjson | grep -c '{\"half' || true", "0")
	m.do("cp -p /run/tgad/journal /opt/journal")
}

// removed looks at what stays: the store and its owner, and no program.
func (m *machine) removed(store string) {
	m.t.Helper()
	m.is("ls /usr/bin/tgad /usr/lib/systemd/system/tgad.service /run/tgad/tgad.sock 2>/dev/null || true", "")
	m.is("systemctl is-active tgad.service tgad.socket | uniq", "inactive")
	m.is("stat -c '%a %U' /var/lib/tgad", "700 tgad")
	m.do("ls /var/lib/tgad | grep -q .")
	m.take(filepath.Join(made.unpacked, "tgad"), "opt/tgad")
	m.do("runuser -u tgad -- /opt/tgad verify /var/lib/tgad")
	m.is("runuser -u tgad -- /opt/tgad init --data /var/lib/tgad --json | sed 's/.*\"store\":\"\\([^\"]*\\)\".*/\\1/'", store)
}
