// Package check decodes the files of the folder deploy with the decoders of the programs
// that they are for, and runs the commands in them. It is a module of its own, since those
// decoders weigh more than all of Spool.
package check

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// openRequests is how long requests that are open at the end of a drain may still take.
const openRequests = 10 * time.Second

// image is what the Dockerfile says about the program that a container runs.
type image struct {
	build  string // the command that builds it
	output string // the file that the command writes
	env    []string
	start  []string // entry point
	args   []string // default arguments
	ports  []string
}

// dockerfile parses the Dockerfile once.
var dockerfile = sync.OnceValues(func() (image, error) {
	var i image
	file, err := os.Open("../Dockerfile")
	if err != nil {
		return i, err
	}
	defer file.Close()
	parsed, err := parser.Parse(file)
	if err != nil {
		return i, err
	}
	if len(parsed.Warnings) > 0 {
		return i, errors.New(parsed.Warnings[0].Short)
	}
	var warned error
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, msg string, _ []parser.Range) { warned = errors.New(rule + ": " + msg) }})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err = errors.Join(err, warned); err != nil {
		return i, err
	}
	for _, s := range stages {
		for _, c := range s.Commands {
			switch c := c.(type) {
			case *instructions.RunCommand:
				if command := strings.Join(c.CmdLine, " "); strings.Contains(command, "go build") {
					i.build = command
				}
			case *instructions.CopyCommand:
				if c.From == stages[0].Name && c.DestPath == "/usr/local/bin/spool" {
					i.output = c.SourcePaths[0]
				}
			case *instructions.EnvCommand:
				for _, kv := range c.Env {
					i.env = append(i.env, kv.Key+"="+kv.Value)
				}
			case *instructions.EntrypointCommand:
				i.start = c.CmdLine
			case *instructions.CmdCommand:
				i.args = c.CmdLine
			case *instructions.ExposeCommand:
				i.ports = c.Ports
			}
		}
	}
	if len(stages) != 2 || i.output == "" || !strings.Contains(i.build, "-o "+i.output+" ") || !slices.Equal(i.start, []string{"/usr/local/bin/spool"}) {
		return i, errors.New("the Dockerfile is not as this test knows it")
	}
	return i, nil
})

// binary is what the Dockerfile's command builds.
var binary = sync.OnceValues(func() (string, error) {
	i, err := dockerfile()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "spool-check-")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "spool")
	build := exec.Command("sh", "-c", strings.Replace(i.build, "-o "+i.output+" ", "-o "+out+" ", 1))
	build.Dir, build.Env = "../..", append(os.Environ(), "VERSION=1.2.3")
	if text, err := build.CombinedOutput(); err != nil {
		return "", errors.New(string(text))
	}
	return out, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if file, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}

// serves runs a container's command with its environment, on a store of this test unless one is
// named. All of the paths have to answer with 200. Then it is asked to stop, which must not
// take longer than the container gets.
func serves(t *testing.T, store string, env, args []string, paths []string, grace time.Duration) {
	t.Helper()
	file, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	i, err := dockerfile()
	if err != nil {
		t.Fatal(err)
	}
	if len(args) == 0 {
		args = i.args
	}
	if store == "" {
		store = "sqlite:" + filepath.Join(t.TempDir(), "spool.db")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, file, args...)
	var log bytes.Buffer
	c.Stderr = &log
	c.Env = append(append(append([]string{"PATH=" + os.Getenv("PATH")}, i.env...), env...),
		"SPOOL_ADDR=127.0.0.1:0", "SPOOL_STORE="+store, "ANTHROPIC_API_KEY=", "OPENAI_API_KEY=")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = c.Wait()
		t.Fatalf("%v: %v\n%s", args, err, &log)
	}
	for _, path := range append(paths, "/") {
		res, err := http.Get(strings.TrimSpace(url) + path)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("after SIGTERM: %v\n%s", err, &log)
	}
	if drain := drainGrace(t, env, args); grace <= drain+openRequests {
		t.Errorf("the container gets %v to stop, and may need %v", grace, drain+openRequests)
	}
}

// drainGrace is what a command says about it, or the default.
func drainGrace(t *testing.T, env, args []string) time.Duration {
	t.Helper()
	value := "5s"
	for _, v := range append(slices.Clone(env), args...) {
		if after, ok := strings.CutPrefix(v, "SPOOL_DRAIN_GRACE="); ok {
			value = after
		}
		if after, ok := strings.CutPrefix(v, "--drain-grace="); ok {
			value = after
		}
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDockerfile(t *testing.T) {
	i, err := dockerfile()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(i.ports, []string{"8080"}) || !slices.Contains(i.env, "SPOOL_ADDR=0.0.0.0:8080") {
		t.Errorf("%+v", i)
	}
	file, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(file, "--version").Output(); err != nil || string(out) != "spool 1.2.3\n" {
		t.Errorf("%q, %v", out, err)
	}
	serves(t, "", nil, nil, nil, 30*time.Second)
}

// startRedis runs the command of the Redis container on a free port of this machine, which it
// returns with its host.
func startRedis(t *testing.T, command []string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = l.Close()
	c := exec.Command(command[0], append(slices.Clone(command[1:]), "--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir())...)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return addr
		}
	}
	t.Fatalf("Redis did not start\n%s", &said)
	return ""
}

func TestCompose(t *testing.T) {
	data, err := os.ReadFile("../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: "..", ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: data}}, Environment: types.Mapping{},
	}, func(o *loader.Options) { o.SkipResolveEnvironment = false })
	if err != nil {
		t.Fatal(err)
	}
	redis := startRedis(t, project.Services["redis"].Command)
	n := 0
	for name, s := range project.Services {
		for of := range s.DependsOn {
			if project.Services[of].HealthCheck == nil {
				t.Errorf("%s waits for %s, which has no health check", name, of)
			}
		}
		if s.Build == nil {
			continue
		}
		n++
		if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
			t.Error(err)
		}
		var env []string
		for k, v := range s.Environment {
			if v != nil {
				env = append(env, k+"="+*v)
			}
		}
		if s.StopGracePeriod == nil {
			t.Fatalf("%s has no grace period", name)
		}
		store := *s.Environment["SPOOL_STORE"]
		if !strings.Contains(store, "redis:6379") {
			t.Fatalf("%s is on %s", name, store)
		}
		serves(t, strings.Replace(store, "redis:6379", redis, 1), env, s.Command, []string{"/healthz", "/readyz"}, time.Duration(*s.StopGracePeriod))
		if !strings.Contains(project.Configs["caddy"].Content, " "+name+":8080") {
			t.Errorf("Caddy does not know %s", name)
		}
	}
	if n != 2 {
		t.Errorf("%d processes", n)
	}
	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, []byte(project.Configs["caddy"].Content), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("caddy", "validate", "--adapter", "caddyfile", "--config", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// objects are those of the Kubernetes manifest.
type objects struct {
	deployment apps.Deployment
	service    core.Service
	budget     policy.PodDisruptionBudget
	ingress    networking.Ingress
}

// decoded decodes the manifest; a member that its type does not have is an error.
func decoded(t *testing.T) (o objects) {
	t.Helper()
	data, err := os.ReadFile("../kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{
			"apps/v1 Deployment": &o.deployment, "v1 Service": &o.service, "policy/v1 PodDisruptionBudget": &o.budget,
			"networking.k8s.io/v1 Ingress": &o.ingress,
		}[kind.APIVersion+" "+kind.Kind]
		if into == nil {
			t.Fatalf("%+v is another kind", kind)
		}
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			t.Fatalf("%s: %v", kind.Kind, err)
		}
	}
	return o
}

func TestKubernetes(t *testing.T) {
	o := decoded(t)
	pod := o.deployment.Spec.Template
	for what, selector := range map[string]map[string]string{"the deployment": o.deployment.Spec.Selector.MatchLabels, "the service": o.service.Spec.Selector,
		"the budget": o.budget.Spec.Selector.MatchLabels, "the spread": pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels} {
		if len(selector) == 0 {
			t.Errorf("%s selects nothing", what)
		}
		for k, v := range selector {
			if pod.Labels[k] != v {
				t.Errorf("%s selects %s=%s", what, k, v)
			}
		}
	}
	if rule := o.ingress.Spec.Rules[0]; rule.Host != o.ingress.Spec.TLS[0].Hosts[0] ||
		rule.HTTP.Paths[0].Backend.Service.Name != o.service.Name || rule.HTTP.Paths[0].Backend.Service.Port.Name != o.service.Spec.Ports[0].Name {
		t.Errorf("the ingress leads elsewhere: %+v", rule)
	}
	c := pod.Spec.Containers[0]
	if len(pod.Spec.Containers) != 1 || c.Ports[0].ContainerPort != 8080 || o.service.Spec.Ports[0].TargetPort.StrVal != c.Ports[0].Name {
		t.Errorf("the ports differ: %+v, %+v", c.Ports, o.service.Spec.Ports)
	}
	var paths []string
	for what, p := range map[string]*core.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != what || p.HTTPGet.Port.StrVal != c.Ports[0].Name {
			t.Fatalf("the probe of %s: %+v", what, p)
		}
		paths = append(paths, p.HTTPGet.Path)
	}
	var env []string
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			env = append(env, v.Name+"="+v.Value)
		} else if v.ValueFrom.SecretKeyRef == nil || v.ValueFrom.SecretKeyRef.Name != "spool" {
			t.Errorf("%s is from elsewhere", v.Name)
		}
	}
	grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds-c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	serves(t, "", env, c.Args, paths, grace)
}
