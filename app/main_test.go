package app

import (
	"os"
	"testing"
)

// TestMain is where the worker processes of the tests begin: they are this very program.
func TestMain(m *testing.M) {
	if code, ok := Child(Options{}); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}
