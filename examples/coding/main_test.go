package main

import (
	"errors"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// TestWeightRefused: rows that are generated have no column of weights, and a run that asks for one is told so.
func TestWeightRefused(t *testing.T) {
	_, err := atoms(t.Context(), trivium.Data{Weight: "w"})
	if e, ok := errors.AsType[*data.Error](err); !ok || e.Field != "weight" {
		t.Errorf("%v, want an Error of data about the weight", err)
	}
	s, err := atoms(t.Context(), trivium.Data{Rows: 20})
	if err != nil || s.Train.Rows() != 20 {
		t.Errorf("%+v, %v; want 20 rows", s, err)
	}
}
