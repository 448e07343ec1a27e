package app

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

type versionVerb struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

func (v *versionVerb) Run(s *session) error {
	b, err := thisBuild()
	if err != nil {
		return err
	}
	if v.JSON {
		return json.NewEncoder(s.out).Encode(b)
	}
	fmt.Fprintf(s.out, "%s %s\n", s.name, b.Version)
	if b.Revision != "" {
		fmt.Fprintf(s.out, "revision %s\n", b.Revision)
	}
	fmt.Fprintf(s.out, "binary sha256:%s\n%s %s\nkernels %s (here: %s)\n", b.Binary, b.Go, b.Platform, b.Kernels, strings.Join(b.available, ", "))
	return nil
}

// A build is what decides the bits of a run beside its job and data: the code and the kernels.
type build struct {
	Version  string `json:"version"`            // of the module that holds main
	Revision string `json:"revision,omitempty"` // of the source, where the go command stamped it; ends in + if the tree had changes
	Binary   string `json:"binary"`             // SHA-256 of the executable file
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernels  string `json:"kernels"`

	available []string
}

// thisVersion is the version of the module that holds main.
func thisVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "(unknown)"
}

// thisBuild says what this process runs. It is found out once: to hash the binary takes some 30 ms, and each worker that is a thread asks.
var thisBuild = sync.OnceValues(readBuild)

func readBuild() (build, error) {
	b := build{Version: thisVersion(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Kernels: kernel.Best().String()}
	for _, isa := range kernel.Available() {
		b.available = append(b.available, isa.String())
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		modified := ""
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				if s.Value == "true" {
					modified = "+"
				}
			}
		}
		if b.Revision != "" {
			b.Revision += modified
		}
	}
	path, err := os.Executable()
	if err != nil {
		return b, err
	}
	f, err := os.Open(path)
	if err != nil {
		return b, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return b, err
	}
	b.Binary = hex.EncodeToString(h.Sum(nil))
	return b, nil
}
