package app

import (
	"os"
	"testing"
)

// TestMain is where the child processes of the tests begin: they are this very program.
func TestMain(m *testing.M) {
	if code, ok := Child(ownOptions()); ok {
		os.Exit(code)
	}
	if code, ok := residentChild(os.Args[1:]); ok {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == commandArgument {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		Main(Options{Name: "trivium"}) // it exits
	}
	os.Exit(m.Run())
}

// commandArgument makes of the test program the command that follows.
const commandArgument = "command-child"
