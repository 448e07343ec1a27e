package pstest_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also where the processes of the tests begin.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childFlag {
		if err := runChild(os.Args[2]); err != nil {
			fmt.Println("fail", fmt.Sprintf("%q", err.Error()))
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// childFlag begins the arguments of a test's own process.
const childFlag = "?part-of-a-parameter-server"
