package compare

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/observe/report"
)

// tuning is what was tried of each other system that was measured, and which settings are kept that it does not ship with: its TUNING.md,
// folded away.
func (r *Report) tuning() (blocks []report.Block) {
	files, err := fs.Sub(peerFiles, "peers")
	if err != nil {
		return nil
	}
	specs, _ := knownPeers(files) // of those that travel in the program none is wrong
	for _, s := range specs {
		text, err := fs.ReadFile(files, s.folder+"/TUNING.md")
		if err != nil || !r.measured(s) {
			continue
		}
		blocks = append(blocks, report.Details{
			Summary: caption("%s: what was tried, and which settings are not as it ships", s.Title), Blocks: tuningOf(string(text)),
		})
	}
	return blocks
}

// measured reports whether a row of that peer has a trial.
func (r *Report) measured(s *peerSpec) bool {
	for _, t := range r.Tables {
		for _, x := range t.Rows {
			if len(x.Trials) > 0 && slices.ContainsFunc(s.Rows, func(row peerRow) bool { return row.Name == x.System }) {
				return true
			}
		}
	}
	return false
}

// tuningOf is a TUNING.md as a page has it: its settings as one table, and below it the paragraphs.
func tuningOf(text string) []report.Block {
	table := report.Table{Columns: []report.Column{{Name: "setting"}, {Name: "effect"}, {Name: "kept"}}, Compact: true}
	var said []string
	for part := range strings.SplitSeq(strings.ReplaceAll(text, "`", ""), "\n\n") {
		if strings.HasPrefix(part, "#") {
			continue
		}
		if !strings.HasPrefix(part, "|") {
			said = append(said, strings.Join(strings.Fields(part), " "))
			continue
		}
		for line := range strings.Lines(part) {
			words := strings.Split(strings.Trim(line, "| \n"), "|")
			if words[0] = strings.TrimSpace(words[0]); words[0] == "setting" || strings.HasPrefix(words[0], "---") || len(words) != len(table.Columns) {
				continue
			}
			row := report.Row{}
			for _, w := range words {
				row.Cells = append(row.Cells, report.Name(strings.TrimSpace(w)))
			}
			table.Rows = append(table.Rows, row)
		}
	}
	blocks := []report.Block{table}
	for _, x := range said {
		if x != "" {
			blocks = append(blocks, say("%s", x))
		}
	}
	return blocks
}
