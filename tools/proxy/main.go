// Command proxy writes a source tree as a file-based module proxy, the form in which the go command finds a released module:
//
//	proxy TREE DIR VERSION
//
// reads the module in TREE and writes its list, info, mod and zip under DIR. With GOPROXY=file://DIR the go command installs the
// tree's commands and builds programs that import it, without any replace.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: proxy TREE DIR VERSION")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

func write(tree, dir, version string) error {
	mod, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		return err
	}
	v := module.Version{Path: modfile.ModulePath(mod), Version: version}
	if v.Path == "" {
		return fmt.Errorf("%s: names no module", filepath.Join(tree, "go.mod"))
	}
	escaped, err := module.EscapePath(v.Path)
	if err != nil {
		return err
	}
	at := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	// The date of a version is free to choose; a fixed one keeps the files the same from run to run.
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Unix(0, 0).UTC()})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": mod} {
		if err := os.WriteFile(filepath.Join(at, name), content, 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(zip.CreateFromDir(f, v, tree), f.Close())
}
