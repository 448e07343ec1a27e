// Package shell writes commands that a user is to type.
package shell

import "strings"

// Word is a word as a shell takes it, in quotes where it needs them.
func Word(w string) string {
	if w == "" || strings.ContainsAny(w, " \t\n'\"$&;()<>|*?[]{}#~!\\`") {
		return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return w
}

// Words is a command as a shell takes it.
func Words(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Word(w)
	}
	return strings.Join(quoted, " ")
}
