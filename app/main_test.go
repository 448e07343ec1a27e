package app

import (
	"os"
	"testing"
)

// TestMain is where the child processes of the tests begin: they are this very program.
func TestMain(m *testing.M) {
	if code, ok := Child(Options{}); ok {
		os.Exit(code)
	}
	if code, ok := residentChild(os.Args[1:]); ok {
		os.Exit(code)
	}
	if code, ok := commandChild(os.Args[1:]); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}
