package control_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/wire/control"
)

func Example() {
	type join struct {
		Addr  string `cbor:"1,keyasint"`
		Cores int    `cbor:"2,keyasint,omitempty"`
	}
	p, err := control.Append(nil, join{Addr: "10.0.0.7:9000", Cores: 8})
	fmt.Printf("%x %v\n", p, err)

	var j join
	fmt.Println(control.Decode("join", p, &j), j)
	fmt.Println(control.Decode("join", []byte{0xa1, 0x02, 0x61, 'x'}, &j))
	// Output:
	// a2016d31302e302e302e373a393030300208 <nil>
	// <nil> {10.0.0.7:9000 8}
	// control: join: field Cores: want a value for int, found UTF-8 text string
}

type peer struct {
	ID    string `cbor:"1,keyasint"`
	Cores int    `cbor:"2,keyasint,omitempty"`
}

type message struct {
	Name   string            `cbor:"1,keyasint"`
	Count  uint64            `cbor:"2,keyasint"`
	Data   []byte            `cbor:"3,keyasint,omitempty"`
	Peers  []peer            `cbor:"4,keyasint,omitempty"`
	Notes  map[string]string `cbor:"5,keyasint,omitempty"`
	At     time.Time         `cbor:"6,keyasint"`
	For    time.Duration     `cbor:"7,keyasint,omitempty"`
	Rate   float64           `cbor:"8,keyasint,omitempty"`
	Next   *message          `cbor:"9,keyasint,omitempty"`
	Hash   [4]byte           `cbor:"10,keyasint"`
	hidden int
}

func full() message {
	return message{
		Name: "überall", Count: 1<<64 - 1, Data: []byte{1, 2, 3}, Peers: []peer{{"a", 2}, {"b", 0}},
		Notes: map[string]string{"z": "1", "a": "2", "": "3"}, At: time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC), For: -time.Second,
		Rate: 0.1, Next: &message{Name: "inner"}, Hash: [4]byte{9, 8, 7, 6},
	}
}

func TestRoundTrip(t *testing.T) {
	want := full()
	p, err := control.Append([]byte("before"), want)
	if err != nil || !bytes.HasPrefix(p, []byte("before")) {
		t.Fatalf("%q, error %v", p, err)
	}
	p = p[len("before"):]
	var found message
	if err := control.Decode("message", p, &found); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("%+v came back as %+v", want, found)
	}
	clear(p)
	if !reflect.DeepEqual(found, want) {
		t.Error("what was decoded changes with the bytes it was decoded from")
	}
}

// TestDeterministic: equal values have equal bytes, whatever order a map's keys come in.
func TestDeterministic(t *testing.T) {
	first, err := control.Append(nil, full())
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if p, _ := control.Append(nil, full()); !bytes.Equal(p, first) {
			t.Fatalf("%x, and then %x", first, p)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	nested := strings.Repeat("81", control.MaxNesting+1) + "00"
	for _, c := range []struct{ name, hex, want string }{
		{"nothing", "", "control: message: EOF"},
		{"cut", "a10163", "control: message: unexpected EOF"},
		{"something follows", "a000", "control: message: cbor: 1 bytes of extraneous data"},
		{"a key twice", "a2016161016162", "control: message: key 1 comes twice"},
		{"another type", "a10100", "control: message: field Name: want a value for string, found positive integer"},
		{"negative", "a10220", "control: message: field Count: want a value for uint64, found negative integer"},
		{"in an element", "a10481a10141aa", "control: message: field Peers: want a value for string, found byte string"},
		{"no struct", "6161", "control: message: cbor: cannot unmarshal UTF-8 text string"},
		{"indefinite length", "bf0100ff", "indefinite-length"},
		{"a tag", "c000", "tag"},
		{"no UTF-8", "a10161ff", "UTF-8"},
		{"nested", nested, "exceeded max nested level"},
		{"many elements", "a1049a00004001" + strings.Repeat("a0", 0x4001), "exceeded max number of elements"},
		{"elements that are not there", "a1049affffffff", "exceeded max number of elements"},
		{"bytes that are not there", "a1035b7fffffffffffffff", "unexpected EOF"},
		{"many pairs", "ba00004001", "exceeded max number of key-value pairs"},
	} {
		p, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var m message
		err = control.Decode("message", p, &m)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "control: message: ") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if err := control.Decode("message", make([]byte, control.MaxLen+1), new(message)); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("a message that is too long: error %v", err)
	}
}

// TestUnknownKeys: what a newer program says besides is ignored; what it leaves out is zero.
func TestUnknownKeys(t *testing.T) {
	newer := struct {
		Name string         `cbor:"1,keyasint"`
		More map[string]any `cbor:"77,keyasint"`
		Text string         `cbor:"comment"`
	}{"x", map[string]any{"a": []int{1, 2}}, "y"}
	p, err := control.Append(nil, newer)
	if err != nil {
		t.Fatal(err)
	}
	var m message
	if err := control.Decode("message", p, &m); err != nil || m.Name != "x" || m.Count != 0 {
		t.Errorf("%+v, error %v", m, err)
	}
}

// TestAppendRefuses: what Decode would not take back is not written.
func TestAppendRefuses(t *testing.T) {
	p := []byte("before")
	deep := any(1)
	for range control.MaxNesting + 1 {
		deep = []any{deep}
	}
	pairs := map[int]bool{}
	for i := range control.MaxPairs + 1 {
		pairs[i] = true
	}
	for _, v := range []any{
		make(chan int),
		struct{ F func() }{},
		message{Data: make([]byte, control.MaxLen)},
		make([]int, control.MaxElements+1), pairs, deep,
		message{Name: "a\xff"},
		message{Notes: map[string]string{"\xff": ""}},
		message{Next: &message{Peers: []peer{{ID: "\xff"}}}},
	} {
		found, err := control.Append(p, v)
		if err == nil || !strings.HasPrefix(err.Error(), "control: encode ") || string(found) != "before" {
			t.Errorf("%T: %d bytes, error %v", v, len(found), err)
		}
	}
	if p, err := control.Append(nil, make([]int, control.MaxElements)); err != nil || control.Decode("largest", p, new([]int)) != nil {
		t.Errorf("the largest: error %v", err)
	}
}

// TestText: what a process printed can be told, whatever it is.
func TestText(t *testing.T) {
	p, err := control.Append(nil, message{Name: control.Text("a\xffb")})
	var m message
	if err = errors.Join(err, control.Decode("message", p, &m)); err != nil || m.Name != "a\uFFFDb" {
		t.Errorf("%q, error %v", m.Name, err)
	}
}

func TestCheck(t *testing.T) {
	if err := control.Check(message{hidden: 1}); err != nil {
		t.Error(err)
	}
	type inner struct{ A int }
	type outer struct {
		B []map[string]*inner `cbor:"1,keyasint"`
		C int                 `cbor:"1,keyasint"`
		D int                 `cbor:"4"`
		E int                 `cbor:"-"`
	}
	err := control.Check(outer{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"inner.A: want a tag", "B and C have the same number 1", "outer.D: want a tag"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// FuzzDecode: any bytes make a message or an error, no panic; a message comes back the same from its own bytes, and those are
// the only ones for it.
func FuzzDecode(f *testing.F) {
	p, err := control.Append(nil, full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Add([]byte{0xa2, 1, 0x61, 'a', 1, 0x61, 'b'})
	f.Add(bytes.Repeat([]byte{0x81}, 40))
	f.Add([]byte{0xa1, 9, 0xa1, 9, 0xa1, 1, 0x60})
	f.Fuzz(func(t *testing.T, p []byte) {
		var m, again message
		if err := control.Decode("message", p, &m); err != nil {
			if !strings.HasPrefix(err.Error(), "control: message: ") {
				t.Fatalf("error %v does not name the message", err)
			}
			return
		}
		q, err := control.Append(nil, m)
		if err != nil {
			if m.At.Year() < 0 || m.At.Year() > 9999 { // RFC 3339 has no such years
				return
			}
			t.Fatalf("%+v was decoded and cannot be coded: %v", m, err)
		}
		if err := control.Decode("message", q, &again); err != nil {
			t.Fatalf("%x came back with the error %v", q, err)
		}
		r, err := control.Append(nil, again)
		if err != nil || !bytes.Equal(q, r) {
			t.Fatalf("%x came back as %x, error %v", q, r, err)
		}
	})
}
