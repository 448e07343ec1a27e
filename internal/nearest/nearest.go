// Package nearest finds the name that a user probably meant.
package nearest

import (
	"fmt"
	"slices"
	"strings"
)

// Name returns the name nearest to want: the only one that begins so, as accuracy does with acc, or else the fewest letters added, dropped, changed
// or swapped, ties in the order given. It is empty where none is near, that is, where more than a third of the letters (and more than one) would change.
func Name(want string, names []string) string {
	if n := begins(want, names); n != "" {
		return n
	}
	best, bestDistance := "", max(1, (len(want)+2)/3)+1
	for _, n := range names {
		if d := distance(strings.ToLower(want), strings.ToLower(n)); d < bestDistance {
			best, bestDistance = n, d
		}
	}
	return best
}

// begins returns the only name that begins with want, two letters or more; else it is empty.
func begins(want string, names []string) (only string) {
	for _, n := range names {
		switch {
		case len(want) < 2 || len(n) < len(want) || !strings.EqualFold(n[:len(want)], want):
		case only != "":
			return ""
		default:
			only = n
		}
	}
	return only
}

// Sentence completes an error about the unknown name want: `did you mean "adam"?` or, with nothing near, the names there are, sorted.
func Sentence(want string, names []string) string {
	if n := Name(want, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return "there are " + strings.Join(names, ", ")
}

// distance is the optimal string alignment distance over bytes: Levenshtein's with swaps of neighbours.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 { // longer than any name of ours
		return 1 << 20
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
