package processes

import (
	"fmt"
	"testing"
)

// TestByHost: ranks by their hosts, where there are several and all are known.
func TestByHost(t *testing.T) {
	for _, v := range []struct {
		hosts []string
		want  string
	}{
		{[]string{"x", "y", "x", "y", "z"}, "[[0 2] [1 3] [4]]"},
		{[]string{"y", "x"}, "[[0] [1]]"},
		{[]string{"x", "x"}, "[]"},
		{[]string{"x", "", "y"}, "[]"},
		{[]string{""}, "[]"},
	} {
		if got := fmt.Sprint(byHost(v.hosts)); got != v.want {
			t.Errorf("%q: %s, want %s", v.hosts, got, v.want)
		}
	}
}
