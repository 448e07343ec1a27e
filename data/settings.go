package data

import (
	"cmp"
	"errors"
	"slices"

	"github.com/trivium-ml/trivium"
)

// refuseFileSettings reports settings that the files have no use for, rather than pass over them.
func refuseFileSettings(main rowFile, d *trivium.Data, fitted bool) error {
	var errs []error
	for _, e := range uselessSettings(main, d, fitted) {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// uselessSettings are those that the files have no use for. Where a transform is fitted already, most of them are those that it was fitted with, to
// other files perhaps.
func uselessSettings(main rowFile, d *trivium.Data, fitted bool) (errs []*Error) {
	if d.Rows != 0 {
		errs = append(errs, setting("rows", "it is for generated data; of a file take a range, such as --train 0:%d", d.Rows))
	}
	if _, sparse := main.(*sparseFile); d.Columns != 0 && !sparse {
		errs = append(errs, setting("columns", "it declares the width of libsvm rows, and %s has its own", main.fileName()))
	}
	if fitted {
		return errs
	}
	if d.Hash != 0 && len(d.Categorical) == 0 {
		errs = append(errs, setting("hash", "no column is named categorical, and only those are hashed"))
	}
	scaled := d.Scale != "" && d.Scale != "none"
	nameless := ""
	switch main.(type) {
	case *arrayFile:
		nameless = "%s holds arrays, whose numbers have no names"
		if scaled {
			errs = append(errs, setting("scale", "%s holds arrays; scaling is for tables", main.fileName()))
		}
	case *sparseFile:
		nameless = "%s is a libsvm file, whose columns have no names"
		if scaled {
			errs = append(errs, setting("scale", "the rows of a libsvm file are sparse, and scaling by %s would fill every cell; scale them beforehand", d.Scale))
		}
	}
	for _, f := range tableSettings(d) {
		if f.set && nameless != "" {
			errs = append(errs, setting(f.name, nameless, main.fileName()))
		}
	}
	return errs
}

type namedSetting struct {
	name string
	set  bool
}

// tableSettings are those that speak of columns by name.
func tableSettings(d *trivium.Data) []namedSetting {
	return []namedSetting{
		{"label", d.Label != ""},
		{"drop", len(d.Drop) > 0},
		{"categorical", len(d.Categorical) > 0},
		{"missing", d.Missing != "" && d.Missing != "error"},
		{"weight", d.Weight != ""},
	}
}

// RefuseSettings refuses the settings of d that say how a file is read or how many rows are generated, but for those that are used, by their names in a
// job: a Source calls it first, so that none of them is passed over in silence.
func RefuseSettings(d trivium.Data, used ...string) error {
	var errs []error
	name := cmp.Or(d.Source, "digits")
	for _, f := range append(tableSettings(&d), namedSetting{"format", d.Format != ""}, namedSetting{"hash", d.Hash != 0},
		namedSetting{"scale", d.Scale != "" && d.Scale != "none"}, namedSetting{"columns", d.Columns != 0}) {
		if f.set && !slices.Contains(used, f.name) {
			errs = append(errs, setting(f.name, "it says how a file is read, and the source %q is none", name))
		}
	}
	if d.Rows != 0 && !slices.Contains(used, "rows") {
		errs = append(errs, setting("rows", "the source %q does not make as many as it is asked for; take a range, such as --train 0:%d", name, d.Rows))
	}
	return errors.Join(errs...)
}
