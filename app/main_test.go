package app

import (
	"context"
	"os"
	"os/signal"
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
	if code, ok := commandChild(os.Args[1:]); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// commandArgument makes of the test program the command that follows.
const commandArgument = "command-child"

func commandChild(args []string) (code int, ok bool) {
	if len(args) == 0 || args[0] != commandArgument {
		return 0, false
	}
	ctx, cancel := signal.NotifyContext(context.Background(), asking()...)
	defer cancel()
	return Run(ctx, args[1:], os.Stdout, os.Stderr, Options{}), true
}
