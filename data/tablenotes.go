package data

import (
	"fmt"
	"strings"
)

// isIndex says whether a column names rows, as the index of a data frame does: it is learnt from only where it is asked for by its name.
func (t *tableFile) isIndex(column int) bool { return t.indexNote(column) != "" }

// indexNote is what is said of such a column; of others, empty.
func (t *tableFile) indexNote(column int) string {
	switch f := t.tableReader.(type) {
	case *parquetFile:
		if f.index != nil && f.index[column] {
			return "is the index of a pandas data frame, and is not learnt from; reset_index makes it a column like others"
		}
	case *csvFile:
		if f.index && column == 0 {
			return "is the rows' names, as pandas and R write them before the first column, and is not learnt from; another name in the first line makes it a column like others"
		}
	}
	return ""
}

// labelNote says which column is the label where nobody has named it.
func (t *tableFile) labelNote() (notes []string) {
	for i, r := range t.p.roles {
		if t.p.guessed && r.kind == roleLabel {
			notes = append(notes, fmt.Sprintf("column %q of %s is the label, since none is called label; --label names another", t.p.names[i], t.fileName()))
		}
	}
	return notes
}

// indexNotes say which columns are left out for that.
func (t *tableFile) indexNotes() (notes []string) {
	for i, name := range t.p.names {
		if note := t.indexNote(i); note != "" && t.p.roles[i].kind == roleSkip {
			notes = append(notes, fmt.Sprintf("column %q of %s %s", name, t.fileName(), note))
		}
	}
	return notes
}

// textNote says what training wants to be told of columns of text, which are named as flags take them.
func textNote(columns []string) []string {
	if len(columns) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("training stops at text where it wants numbers: --categorical %[1]s takes the columns as names, --drop %[1]s leaves them out",
		flagList(columns))}
}

// flagList is what a flag takes for columns, named as it takes each: of very many the first, since nobody would paste them.
func flagList(columns []string) string {
	const most = 30
	if len(columns) > most {
		columns = append(columns[:most:most], "…")
	}
	return strings.Join(columns, ",")
}
