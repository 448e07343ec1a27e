package trust

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestToken(t *testing.T) {
	token := Token{must(NewSecret()), must(NewAuthority(time.Now())).Hash()}
	text := token.String()
	if back, err := ParseToken(text); err != nil || back != token {
		t.Fatalf("%v, %v", back, err)
	}
	// Every single wrong letter, and every two neighbours swapped, is found.
	for i := range len(text) {
		for _, c := range []byte("abcdefghijklmnopqrstuvwxyz234567018-_ ") {
			typo := []byte(text)
			if typo[i] == c {
				continue
			}
			typo[i] = c
			if _, err := ParseToken(string(typo)); err == nil {
				t.Fatalf("%q for %q at %d is taken", c, text[i], i)
			} else if strings.Contains(err.Error(), text[20:40]) {
				t.Fatalf("the error shows the token: %v", err)
			}
		}
		if i > 0 && text[i] != text[i-1] {
			typo := []byte(text)
			typo[i], typo[i-1] = typo[i-1], typo[i]
			if _, err := ParseToken(string(typo)); err == nil {
				t.Fatalf("%d and %d swapped are taken", i-1, i)
			}
		}
	}
	for _, c := range []struct{ text, want string }{
		{"", "empty"},
		{"hunter2", "begins with trivium1"},
		{text[:len(text)-1], fmt.Sprintf("has %d characters, and this one has %d", len(text), len(text)-1)},
		{text + text, "characters, and this one"},
		{text[:30] + "0" + text[31:], `character 31 of the token is '0'`},
		{text[:30] + swap(text[30]) + text[31:], "checksum"},
	} {
		if _, err := ParseToken(c.text); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "copy it again") {
			t.Errorf("%d characters: error %v, want %q", len(c.text), err, c.want)
		}
	}
}

func swap(b byte) string {
	if b == 'a' {
		return "b"
	}
	return "a"
}

func FuzzParseToken(f *testing.F) {
	f.Add(Token{}.String())
	f.Add("trivium1")
	f.Fuzz(func(t *testing.T, s string) {
		if token, err := ParseToken(s); err == nil && token.String() != strings.ToLower(strings.TrimSpace(s)) {
			t.Fatalf("%q is taken for %q", s, token)
		}
	})
}
