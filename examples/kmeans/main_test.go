package main

import (
	"errors"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// TestSettingsRefused: points that are generated are read from no table, and a run that asks for a column of one, or for its scaling, is told so.
func TestSettingsRefused(t *testing.T) {
	for field, d := range map[string]trivium.Data{"weight": {Weight: "w"}, "scale": {Scale: "standard"}, "label": {Label: "2"}} {
		_, err := groups(t.Context(), d)
		if e, ok := errors.AsType[*data.Error](err); !ok || e.Field != field {
			t.Errorf("%v, want an Error of data about the %s", err, field)
		}
	}
	s, err := groups(t.Context(), trivium.Data{Rows: 20})
	if err != nil || s.Train.Rows() != 20 {
		t.Errorf("%+v, %v; want 20 points", s, err)
	}
}
