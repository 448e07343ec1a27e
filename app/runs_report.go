package app

import (
	"fmt"

	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/rundir"
)

type runsReport struct {
	Names []string `arg:"" name:"run" help:"Runs, up to 8: a folder, a name, the beginning of a name, or last."`
	runsFlags
	To string `short:"t" default:"report.html" placeholder:"FILE" help:"Where to write; - is standard output (default report.html)."`
}

func (v *runsReport) Run(s *session) error {
	var runs []*rundir.Run
	for _, name := range v.Names {
		found, err := findRun(v.Out, name)
		if err != nil {
			return err
		}
		r, err := rundir.Open(found.Dir)
		if err != nil {
			return misused(err)
		}
		runs = append(runs, r)
	}
	page, err := report.Runs(runs, report.Options{})
	if err != nil {
		return misused(err)
	}
	if err := writeTo(s.out, v.To, page.WriteHTML); err != nil {
		return err
	}
	if v.To != "-" {
		fmt.Fprintf(s.err, "%s: wrote %s\n", s.name, v.To)
	}
	return nil
}
