// What `helm lint`, `helm template` and `kubeconform -strict` do, with their packages, in one program that is compiled in a fraction of the time
// of both, because it needs no cluster and no registry.
//
//	chart CHART SCHEMAS
//
// CHART is the folder of the chart. SCHEMAS is a folder of JSON schemas, GROUP/kind-version.json (deploy/kube/lab/schemas.rb makes it). Each
// line of standard input is a JSON object, and is answered by a line with one:
//
//	{"values": {…}, "name": "shop", "namespace": "web"}  lints, renders and checks the chart with these values
//	{"manifest": "…"}                                    checks a document of YAML
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"github.com/yannh/kubeconform/pkg/validator"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

type question struct {
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Values    map[string]any `json:"values"`
	Manifest  string         `json:"manifest"`
}

// An answer. Error is what the chart or its schema of values refuses; nothing was rendered then.
type answer struct {
	Error    string            `json:"error,omitempty"`
	Lint     []string          `json:"lint"`
	Rendered map[string]string `json:"rendered"`
	Valid    int               `json:"valid"`
	Invalid  []string          `json:"invalid"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chart CHART SCHEMAS < QUESTIONS")
		os.Exit(2)
	}
	// Helm logs what a template refuses, which is an answer here.
	log.SetOutput(io.Discard)
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func serve(folder, schemas string) error {
	chrt, err := loader.LoadDir(folder)
	if err != nil {
		return fmt.Errorf("%s is no chart: %w", folder, err)
	}
	location := filepath.Join(schemas, "{{ .Group }}", "{{ .ResourceKind }}-{{ .ResourceAPIVersion }}.json")
	conform, err := validator.New([]string{location}, validator.Opts{Strict: true})
	if err != nil {
		return fmt.Errorf("%s: %w", schemas, err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return fmt.Errorf("a line of standard input is not a question: %w", err)
		}
		reply := answer{Lint: []string{}, Rendered: map[string]string{}, Invalid: []string{}}
		if asked.Manifest != "" {
			reply.check(conform, "manifest", asked.Manifest)
		} else {
			reply.try(chrt, folder, conform, asked)
		}
		if err := out.Encode(reply); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Lints, renders, and checks what was rendered.
func (a *answer) try(chrt *chart.Chart, folder string, conform validator.Validator, asked question) {
	linted := lint.AllWithKubeVersionAndSchemaValidation(folder, asked.Values, asked.Namespace, nil, false)
	for _, message := range linted.Messages {
		if message.Severity >= support.WarningSev {
			a.Lint = append(a.Lint, message.Error())
		}
	}
	release := chartutil.ReleaseOptions{Name: asked.Name, Namespace: asked.Namespace, Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValues(chrt, asked.Values, release, nil)
	if err != nil {
		a.Error = err.Error()
		return
	}
	rendered, err := engine.Render(chrt, values)
	if err != nil {
		a.Error = err.Error()
		return
	}
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		text := rendered[name]
		base := path.Base(name)
		if strings.HasPrefix(base, "_") || strings.TrimSpace(text) == "" {
			continue
		}
		a.Rendered[base] = text
		if strings.HasSuffix(base, ".yaml") {
			a.check(conform, base, text)
		}
	}
}

// Checks each document of a text of YAML.
func (a *answer) check(conform validator.Validator, name, text string) {
	for _, result := range conform.Validate(name, io.NopCloser(strings.NewReader(text))) {
		switch result.Status {
		case validator.Valid:
			a.Valid++
		case validator.Empty:
		default:
			a.Invalid = append(a.Invalid, fmt.Sprintf("%s: %v", name, result.Err))
		}
	}
}
