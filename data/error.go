package data

import (
	"fmt"
	"strings"
)

// An Error is a mistake in the data or in its description: something its owner must mend, as opposed to a machine that failed. It says
// what is wrong and where. Programs that tell usage errors from others look for it with errors.As.
type Error struct {
	File   string `json:"file,omitempty"`  // as the user named it; empty where no file is at fault
	Line   int64  `json:"line,omitempty"`  // of a text file, from 1; 0: none
	Row    int64  `json:"row"`             // of a file without lines, from 0; −1: none
	Offset int64  `json:"offset"`          // bytes from the start of the (decompressed) file; −1: none
	Field  string `json:"field,omitempty"` // column, key or setting; empty: none
	Msg    string `json:"message"`         // what is wrong, what was wanted, what to do
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("data: ")
	if e.File != "" {
		b.WriteString(e.File)
		b.WriteString(": ")
	}
	var where []string
	if e.Line > 0 {
		where = append(where, fmt.Sprintf("line %d", e.Line))
	}
	if e.Row >= 0 {
		where = append(where, fmt.Sprintf("row %d", e.Row))
	}
	if e.Offset >= 0 {
		where = append(where, fmt.Sprintf("offset %d", e.Offset))
	}
	if e.Field != "" {
		where = append(where, e.Field)
	}
	if len(where) > 0 {
		b.WriteString(strings.Join(where, ", "))
		b.WriteString(": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}

// fault returns an Error about a whole file.
func fault(file, format string, args ...any) *Error {
	return &Error{File: file, Row: -1, Offset: -1, Msg: fmt.Sprintf(format, args...)}
}

// faultAt returns an Error about a byte of a file.
func faultAt(file string, offset int64, format string, args ...any) *Error {
	e := fault(file, format, args...)
	e.Offset = offset
	return e
}

// setting returns an Error about a field of the data's description.
func setting(field, format string, args ...any) *Error {
	e := fault("", format, args...)
	e.Field = field
	return e
}

// columnField names a column in an Error.
func columnField(name string) string { return fmt.Sprintf("column %q", name) }
