package compare

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// A PeerState says of a peer whether it is here.
type PeerState struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	Rows   []string `json:"rows"`
	SizeMB int      `json:"size_mb"` // of its environment, about
	Facts  Facts    `json:"facts,omitempty"`
	Absent string   `json:"absent,omitempty"`
}

// PeerStates looks for all peers.
func PeerStates(ctx context.Context, root string) ([]PeerState, error) {
	rows, err := Peers(root)
	if err != nil {
		return nil, err
	}
	var list []PeerState
	for _, s := range rows {
		p := s.(*peer) // Peers makes no others
		i := slices.IndexFunc(list, func(x PeerState) bool { return x.Name == p.peerSpec.Name })
		if i < 0 {
			x := PeerState{Name: p.peerSpec.Name, Title: p.Title, SizeMB: p.SizeMB}
			if x.Facts, err = p.Detect(ctx); err != nil {
				x.Absent = err.Error()
			}
			i, list = len(list), append(list, x)
		}
		list[i].Rows = append(list[i].Rows, p.row.Name)
	}
	return list, ctx.Err()
}

// doneFile marks an environment that is whole.
const doneFile = "installed"

// InstallPeers makes private environments for those peers, by Python's usual client: its size is said first, what the client prints goes to
// out, and one that was interrupted goes on. sources are the folders of those that are built from a source that the user has, by name.
func InstallPeers(ctx context.Context, root string, names []string, sources map[string]string, out io.Writer) error {
	files, err := fs.Sub(peerFiles, "peers")
	if err != nil {
		return err
	}
	specs, err := knownPeers(files)
	if err != nil {
		return err
	}
	if root == "" {
		if root, err = peerRoot(); err != nil {
			return err
		}
	}
	var chosen []*peerSpec
	var errs []error
	var known []string
	for _, s := range specs {
		known = append(known, s.Name)
	}
	for _, n := range names {
		i := slices.Index(known, n)
		if i < 0 {
			errs = append(errs, fmt.Errorf("compare: no peer is called %q; %s", n, nearest.Sentence(n, known)))
			continue
		}
		if len(specs[i].Install) == 0 {
			errs = append(errs, fmt.Errorf("compare: %s has no package to install: %s", n, specs[i].mend()))
			continue
		}
		if s := specs[i]; s.Source != "" && sources[n] == "" {
			errs = append(errs, fmt.Errorf("compare: %s is built from %s: name its folder with --peer-source %s=DIR", n, s.Source, n))
			continue
		}
		chosen = append(chosen, specs[i])
	}
	for n, dir := range sources {
		i := slices.Index(known, n)
		if i < 0 || specs[i].Source == "" {
			errs = append(errs, fmt.Errorf("compare: --peer-source %s=%s: no peer of that name is built from a source", n, dir))
		} else if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			errs = append(errs, fmt.Errorf("compare: --peer-source %s=%s: there is no such folder", n, dir))
		}
	}
	if err := mistakes(errs); err != nil {
		return err
	}
	for _, s := range chosen {
		fmt.Fprintf(out, "%s: about %d MB to %s\n", s.Name, s.SizeMB, filepath.Join(root, s.Name))
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	want := int64(0)
	for _, s := range chosen {
		want += int64(s.SizeMB) << 20
	}
	if there, ok := freeDisk(root); ok && want > there {
		return fmt.Errorf("compare: %s has %s left, and about %s are wanted", root, quantity.Bytes(there), quantity.Bytes(want))
	}
	for _, s := range chosen {
		if err := s.install(ctx, filepath.Join(root, s.Name), sources[s.Name], out); err != nil {
			return fmt.Errorf("compare: %s: %w; what there is stays, and the same command goes on", s.Name, err)
		}
	}
	return nil
}

// install makes one environment.
func (s *peerSpec) install(ctx context.Context, env, source string, out io.Writer) error {
	for _, dir := range []*string{&env, &source} {
		if *dir != "" {
			whole, err := filepath.Abs(*dir) // commands run in folders of their own
			if err != nil {
				return err
			}
			*dir = whole
		}
	}
	if _, err := os.Stat(filepath.Join(env, doneFile)); err == nil {
		fmt.Fprintf(out, "%s: is there\n", s.Name)
		return nil
	}
	python := filepath.Join(env, "bin", "python")
	// A command that was killed may have left an environment without its pip, or with half of it: what pip installs is known from its end on.
	if _, err := answer(ctx, detectLimit, python, "-m", "pip", "show", "--quiet", "pip"); err != nil {
		base, err := findPython(ctx, s.Python)
		if err != nil {
			return err
		}
		if err := step(ctx, out, s.Name, base, "-m", "venv", env); err != nil {
			return err
		}
	}
	here, err := os.MkdirTemp("", "trivium-peer-") // what a step may need of the peer's own files
	if err != nil {
		return err
	}
	defer os.RemoveAll(here)
	if err := os.CopyFS(here, s.dir); err != nil {
		return err
	}
	for _, words := range s.Install {
		words = replaced(words, "{python}", python, "{env}", env, "{source}", source, "{here}", filepath.Join(here, s.folder))
		if err := step(ctx, out, s.Name, words...); err != nil {
			return err
		}
	}
	return writeFile(filepath.Join(env, doneFile), func(f *os.File) error {
		_, err := fmt.Fprintln(f, time.Now().Format(time.RFC3339))
		return err
	})
}

// step runs one command of an installation. It has no limit: what it prints is before the user's eyes, a large package over a slow line takes
// its time, and what he interrupts goes on.
func step(ctx context.Context, out io.Writer, name string, words ...string) error {
	fmt.Fprintf(out, "%s: %s\n", name, strings.Join(words, " "))
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it tidies up
	cmd.WaitDelay = 10 * time.Second
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	endWithUs(cmd)
	var problems lastLines
	cmd.Stdout, cmd.Stderr = out, io.MultiWriter(out, &problems)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", words[0], err, last(problems.lines()))
	}
	return nil
}

// findPython returns a Python of a version in the range, such as 3.8-3.11, the newest first.
func findPython(ctx context.Context, span string) (string, error) {
	low, high := 8, 13
	if _, err := fmt.Sscanf(span, "3.%d-3.%d", &low, &high); err != nil && span != "" {
		return "", fmt.Errorf("its versions of Python are %q", span)
	}
	for minor := high; minor >= low; minor-- {
		path, err := exec.LookPath(fmt.Sprintf("python3.%d", minor))
		if err != nil {
			continue
		}
		if _, err := answer(ctx, detectLimit, path, "-c", "import venv, ensurepip"); err == nil {
			return path, nil
		}
	}
	if path, err := exec.LookPath("python3"); err == nil {
		out, err := answer(ctx, detectLimit, path, "-c", "import sys, venv, ensurepip; print(sys.version_info[1])")
		var minor int
		if _, e := fmt.Sscan(string(out), &minor); err == nil && e == nil && minor >= low && minor <= high {
			return path, nil
		}
	}
	return "", fmt.Errorf("looked for Python 3.%d to 3.%d with venv on PATH, and found none", low, high)
}
