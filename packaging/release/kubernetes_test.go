package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// objects reads the manifests as the types of Kubernetes: a member that a type does not have is an error.
func objects(t *testing.T) (all []any) {
	t.Helper()
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for _, text := range bytes.Split([]byte(read(t, file)), []byte("\n---\n")) {
			var kind struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal(text, &kind); err != nil {
				t.Fatal(err)
			}
			object := map[string]any{
				"v1 ConfigMap": &corev1.ConfigMap{}, "v1 Service": &corev1.Service{}, "apps/v1 Deployment": &appsv1.Deployment{}, "batch/v1 Job": &batchv1.Job{},
				"batch/v1 CronJob": &batchv1.CronJob{}, "policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "networking.k8s.io/v1 NetworkPolicy": &networkingv1.NetworkPolicy{},
			}[kind.APIVersion+" "+kind.Kind]
			if object == nil {
				t.Fatalf("%s has a %s of %s", file, kind.Kind, kind.APIVersion)
			}
			if err := yaml.UnmarshalStrict(text, object); err != nil {
				t.Errorf("%s: %s: %v", file, kind.Kind, err)
			}
			all = append(all, object)
		}
	}
	return all
}

func one[T any](t *testing.T, all []any) T {
	t.Helper()
	for _, o := range all {
		if found, ok := o.(T); ok {
			return found
		}
	}
	var none T
	t.Fatalf("no manifest has a %T", none)
	return none
}

// TestManifestsFitTogether: they are what Kubernetes takes, labels choose the pods that they mean, and volumes and
// keys are there.
func TestManifestsFitTogether(t *testing.T) {
	all := objects(t)
	fleet, config := one[*appsv1.Deployment](t, all), one[*corev1.ConfigMap](t, all)
	pod := fleet.Spec.Template
	chosen := map[string]map[string]string{
		"the deployment": fleet.Spec.Selector.MatchLabels, "the service": one[*corev1.Service](t, all).Spec.Selector,
		"the budget": one[*policyv1.PodDisruptionBudget](t, all).Spec.Selector.MatchLabels,
	}
	for what, labels := range chosen {
		if len(labels) == 0 {
			t.Errorf("%s chooses everything", what)
		}
		for name, value := range labels {
			if pod.Labels[name] != value {
				t.Errorf("%s chooses %s=%s, which the pods do not have", what, name, value)
			}
		}
		if job := one[*batchv1.Job](t, all).Spec.Template.Labels; job["app.kubernetes.io/component"] == labels["app.kubernetes.io/component"] {
			t.Errorf("%s chooses the pods of the migration too", what)
		}
	}
	containers := append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...)
	containers = append(containers, one[*batchv1.Job](t, all).Spec.Template.Spec.Containers...)
	containers = append(containers, one[*batchv1.CronJob](t, all).Spec.JobTemplate.Spec.Template.Spec.Containers...)
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = false
		if v.ConfigMap != nil && v.ConfigMap.Name != config.Name {
			t.Errorf("volume %s is of %s, which no manifest has", v.Name, v.ConfigMap.Name)
		}
	}
	for _, c := range containers {
		for _, m := range c.VolumeMounts {
			if _, ok := volumes[m.Name]; !ok {
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			}
			volumes[m.Name] = true
		}
		s := c.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s may do more than it needs: %+v", c.Name, s)
		}
		if c.Image != containers[0].Image {
			t.Errorf("%s runs %s, others %s", c.Name, c.Image, containers[0].Image)
		}
	}
	for name, used := range volumes {
		if !used {
			t.Errorf("nobody mounts the volume %s", name)
		}
	}
	if r := pod.Spec.InitContainers[0].RestartPolicy; r == nil || *r != corev1.ContainerRestartPolicyAlways {
		t.Error("the daemon is no sidecar: the gateway would wait for its end")
	}
}

// TestPodRuns plays a kubelet: the containers of the fleet's pod on the image, with the users, arguments, probes,
// files and modes of the manifest. In place of the database the daemon gets a directory.
func TestPodRuns(t *testing.T) {
	all := objects(t)
	pod, config := one[*appsv1.Deployment](t, all).Spec.Template.Spec, one[*corev1.ConfigMap](t, all)
	daemon, gateway := pod.InitContainers[0], pod.Containers[0]
	root := t.TempDir()
	run(t, "sh", "-c", "chmod 755 "+root+" && cd "+root+" && mkdir -p usr/bin etc/tgad etc/tgad-keys run/tgad var/lib/tgad data")
	for _, name := range []string{"tgad", "tgad-postgres"} {
		run(t, "install", "-m", "0755", filepath.Join(made.unpacked, name), filepath.Join(root, "usr/bin"))
	}
	// A kubelet gives volumes to the pod's group: directories with everybody's right to write, secrets without.
	group := fmt.Sprint(*pod.SecurityContext.FSGroup)
	before, after, ok := strings.Cut(config.Data["tgad.toml"], "[store]\n")
	_, after, ok2 := strings.Cut(after, "\n\n")
	if !ok || !ok2 {
		t.Fatal("the configuration has no [store]")
	}
	key := "0123456789abcdef0123456789abcdef"
	for name, text := range map[string]string{"etc/tgad/tgad.toml": before + after, "etc/tgad/gateway.toml": config.Data["gateway.toml"], "etc/tgad-keys/ann": key} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o440); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "sh", "-c", "cd "+root+" && chgrp "+group+" etc/tgad/* etc/tgad-keys/* run/tgad var/lib/tgad data && chmod 2777 run/tgad var/lib/tgad && chmod 0700 data && chown "+fmt.Sprint(*daemon.SecurityContext.RunAsUser)+" data")

	in := func(c corev1.Container, args ...string) *exec.Cmd {
		s := c.SecurityContext
		// The image's entrypoint, but for a probe, which names its program.
		if !strings.HasPrefix(args[0], "/") {
			args = append([]string{"/usr/bin/tgad"}, args...)
		}
		cmd := exec.Command("chroot", append([]string{fmt.Sprintf("--userspec=%d:%d", *s.RunAsUser, *s.RunAsGroup), "--groups=" + group, root}, args...)...)
		cmd.Env = []string{"PATH=/usr/bin"}
		return cmd
	}
	start := func(c corev1.Container, args ...string) *bytes.Buffer {
		cmd, log := in(c, args...), &bytes.Buffer{}
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s: %v\n%s", c.Name, err, log)
			}
			if t.Failed() {
				t.Logf("%s says\n%s", c.Name, log)
			}
		})
		return log
	}
	for _, probe := range []*corev1.Probe{daemon.StartupProbe, daemon.ReadinessProbe, daemon.LivenessProbe} {
		if out, err := in(daemon, probe.Exec.Command...).CombinedOutput(); err == nil {
			t.Errorf("%v passes without a daemon: %s", probe.Exec.Command, out)
		}
	}
	// The very arguments of the manifest find their configuration, and then miss the database.
	_ = start(daemon, append(slices.Clone(daemon.Args), "--data", "/data/store")...)
	within := func(what string, f func() error) {
		t.Helper()
		var err error
		for range 300 {
			if err = f(); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Fatalf("%s: %v", what, err)
	}
	for _, probe := range []*corev1.Probe{daemon.StartupProbe, daemon.ReadinessProbe, daemon.LivenessProbe} {
		within(strings.Join(probe.Exec.Command, " "), func() error {
			out, err := in(daemon, probe.Exec.Command...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	listen := fmt.Sprintf("127.0.0.1:%d", 20000+os.Getpid()%10000)
	args := slices.Clone(gateway.Args)
	args[slices.Index(args, "0.0.0.0:8700")] = listen
	_ = start(gateway, args...)
	ask := func(authorization string) (int, error) {
		body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+listen+"/", strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Authorization", authorization)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	within("the gateway knows its client", func() error {
		status, err := ask("Bearer " + key)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
	if status, err := ask("Bearer of-nobody"); err != nil || status != http.StatusUnauthorized {
		t.Errorf("an unknown client gets %d, %v", status, err)
	}
	// The socket is of the daemon's directory, which others than the group cannot enter.
	if info, err := os.Stat(filepath.Join(root, "run/tgad/socket")); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("the socket's directory: %v, %v", info, err)
	}
}
