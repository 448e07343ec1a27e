// Package control codes the messages that are not hot: joins, views, jobs. They are CBOR (RFC 8949), with integers for keys, so that
// a message is small and a field may be renamed. What is sent for every gradient or row is coded by hand, with package wire.
//
//	type join struct {
//		Addr  string `cbor:"1,keyasint"`
//		Token []byte `cbor:"2,keyasint"`
//		Cores int    `cbor:"3,keyasint,omitempty"`
//	}
//
//	p, err := control.Append(nil, join{...})
//	err = control.Decode("join", p, &j)
//
// How messages change: a new field takes a new number, and must mean nothing when it is missing; a number is never used again. Decode
// ignores numbers that it does not know, so that an older program understands a newer one as far as it can. [Check], called in a test,
// finds a field without a number.
//
// The encoding is the core deterministic one of RFC 8949, section 4.2: equal values have equal bytes, and may be hashed or signed.
package control

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// What Decode accepts at most. A decoded value may take more memory than its bytes: an element of one byte fills a whole struct. The
// bounds keep that within some megabytes.
const (
	MaxLen      = 1 << 20 // bytes of a message
	MaxNesting  = 16      // arrays and maps within one another
	MaxElements = 16 << 10
	MaxPairs    = 16 << 10
)

// Text is s with U+FFFD in place of what is no UTF-8: what a process printed, or a file is called, as a string that Append takes.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Append appends v, coded, to p. What Decode would refuse, as too large or as text that is no UTF-8, is refused. Times keep their nanoseconds.
func Append(p []byte, v any) ([]byte, error) {
	b := bytes.NewBuffer(p)
	if err := modes().enc.MarshalToBuffer(v, b); err != nil {
		return p, fmt.Errorf("control: encode %T: %w", v, err)
	}
	if n := b.Len() - len(p); n > MaxLen {
		return p, fmt.Errorf("control: encode %T: %d bytes, at most %d", v, n, MaxLen)
	}
	if err := modes().dec.Unmarshal(b.Bytes()[len(p):], like(v)); err != nil {
		return p, fmt.Errorf("control: encode %T: %w", v, err)
	}
	return b.Bytes(), nil
}

// like is where what v was coded as can be decoded to.
func like(v any) any {
	if v == nil {
		return new(any)
	}
	return reflect.New(reflect.TypeOf(v)).Interface()
}

// Decode reads p, all of it, into v, a pointer; what names the message in errors. It refuses what is no CBOR, what follows the end,
// a key that comes twice, tags, indefinite lengths, text that is no UTF-8, and what is larger than the bounds; keys that v does not
// have are ignored. After an error, v's content is undefined. Nothing in v shares memory with p.
func Decode(what string, p []byte, v any) error {
	if len(p) > MaxLen {
		return fmt.Errorf("control: %s: %d bytes, at most %d", what, len(p), MaxLen)
	}
	err := modes().dec.Unmarshal(p, v)
	if err == nil {
		return nil
	}
	var (
		kind  *cbor.UnmarshalTypeError
		twice *cbor.DupMapKeyError
	)
	switch {
	case errors.As(err, &kind) && kind.StructFieldName != "":
		return fmt.Errorf("control: %s: field %s: want a value for %s, found %s", what, field(v, kind.StructFieldName), kind.GoType, kind.CBORType)
	case errors.As(err, &twice):
		return fmt.Errorf("control: %s: key %v comes twice", what, twice.Key)
	}
	return fmt.Errorf("control: %s: %w", what, err)
}

// field is the name of v's field with that number, which is what an error of the decoder ends with.
func field(v any, number string) string {
	number = number[strings.LastIndexByte(number, '.')+1:]
	t := reflect.TypeOf(v)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t != nil && t.Kind() == reflect.Struct {
		for f := range fields(t) {
			if n, _, _ := strings.Cut(f.Tag.Get("cbor"), ","); n == number {
				return f.Name
			}
		}
	}
	return number
}

// fields are those that are coded.
func fields(t reflect.Type) iter.Seq[reflect.StructField] {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && f.Tag.Get("cbor") != "-" && !yield(f) {
				return
			}
		}
	}
}

// Bytes is a string that need not be UTF-8, such as a key or a path: it is coded as a byte string, where a plain string is text. Unlike
// a []byte it can be compared.
type Bytes = cbor.ByteString

type coders struct {
	enc cbor.UserBufferEncMode
	dec cbor.DecMode
}

// modes are the options compiled, once.
var modes = sync.OnceValue(func() coders {
	e := cbor.CoreDetEncOptions()
	e.Time = cbor.TimeRFC3339Nano
	e.TagsMd = cbor.TagsForbidden
	enc, err := e.UserBufferEncMode()
	if err != nil {
		panic(err) // the options contradict each other: this program is wrong
	}
	dec, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  MaxNesting,
		MaxArrayElements: MaxElements,
		MaxMapPairs:      MaxPairs,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return coders{enc, dec}
})

// Check reports each exported field of v, and of the structs in it, that has no number of its own: such a field would be coded by its
// name, or hide another. It is for tests, which name the messages of their package.
func Check(v any) error {
	var bad []error
	check(reflect.TypeOf(v), map[reflect.Type]bool{}, &bad)
	return errors.Join(bad...)
}

func check(t reflect.Type, seen map[reflect.Type]bool, bad *[]error) {
	if t == nil || seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		check(t.Elem(), seen, bad)
	case reflect.Map:
		check(t.Key(), seen, bad)
		check(t.Elem(), seen, bad)
	case reflect.Struct:
		if t.PkgPath() == "time" {
			return
		}
		numbers := map[int]string{}
		for f := range fields(t) {
			parts := strings.Split(f.Tag.Get("cbor"), ",")
			n, err := strconv.Atoi(parts[0])
			switch {
			case err != nil || n < 1 || !slices.Contains(parts[1:], "keyasint"):
				*bad = append(*bad, fmt.Errorf("control: %v.%s: want a tag such as `cbor:\"%d,keyasint\"`, found `%s`", t, f.Name, f.Index[0]+1, f.Tag))
			case numbers[n] != "":
				*bad = append(*bad, fmt.Errorf("control: %v: %s and %s have the same number %d", t, numbers[n], f.Name, n))
			}
			numbers[n] = f.Name
			check(f.Type, seen, bad)
		}
	}
}
