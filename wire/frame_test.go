package wire_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/wire"
)

func ExampleHeader() {
	h := wire.Header{Kind: 3, Length: 5, Head: 1, Stream: wire.StreamID("ps"), Op: wire.MakeOp(17, 2)}
	var p [wire.HeaderLen]byte
	h.Put(&p)

	var back wire.Header
	fmt.Println(back.Parse(&p), back == h, back.Op.Step(), back.Op.Index())

	copy(p[:], "GET / HTTP/1.1")
	fmt.Println(back.Parse(&p))
	// Output:
	// <nil> true 17 2
	// wire: frame: magic: want 0x7654, found 0x4547 (an HTTP request: this port speaks Trivium's frames)
}

func header() wire.Header {
	return wire.Header{
		Kind: 0x11, Flags: wire.Summed, Length: 0x00123456, Head: 0x789a, Epoch: 0x0102030405060708, Stream: 0x21222324,
		Fingerprint: 0x31323334, Op: wire.MakeOp(0x51525354, 0x6789a), Chunk: 0x41424344, Sum: 0x61626364,
	}
}

// TestHeaderBytes holds the format: a program of another version of this package must find each field where it is today.
func TestHeaderBytes(t *testing.T) {
	h := header()
	var p [wire.HeaderLen]byte
	h.Put(&p)
	want := "5476" + "01" + "11" + // magic, version, kind
		"56341200" + // length
		"0807060504030201" + // epoch
		"24232221" + "34333231" + // stream, fingerprint
		"9a78463525150500" + // op
		"44434241" + // chunk
		"9a78" + "0100" + // head, flags
		"64636261" // payload's checksum
	if found := hex.EncodeToString(p[:44]); found != want {
		t.Errorf("bytes\n%s, want\n%s", found, want)
	}
	if sum := crc32.Checksum(p[:44], crc32.MakeTable(crc32.Castagnoli)); binary.LittleEndian.Uint32(p[44:]) != sum {
		t.Errorf("checksum %x, want %x", p[44:], sum)
	}
	var back wire.Header
	if err := back.Parse(&p); err != nil || back != h {
		t.Errorf("%+v came back as %+v, error %v", h, back, err)
	}
}

// TestHeaderFlips: every single flipped bit, and every two in a row, are found.
func TestHeaderFlips(t *testing.T) {
	h := header()
	var good [wire.HeaderLen]byte
	h.Put(&good)
	for bit := range 8 * wire.HeaderLen {
		for _, run := range []int{1, 2, 31} {
			p := good
			for b := bit; b < min(bit+run, 8*wire.HeaderLen); b++ {
				p[b/8] ^= 1 << (b % 8)
			}
			back := wire.Header{Kind: 99}
			var bad *wire.FrameError
			if err := back.Parse(&p); !errors.As(err, &bad) {
				t.Errorf("%d bits flipped from %d: error %v", run, bit, err)
			} else if back != (wire.Header{Kind: 99}) {
				t.Errorf("%d bits flipped from %d: Parse wrote a header that it refuses", run, bit)
			}
		}
	}
}

func TestHeaderRefusals(t *testing.T) {
	seal := func(p *[wire.HeaderLen]byte) {
		binary.LittleEndian.PutUint32(p[44:], crc32.Checksum(p[:44], crc32.MakeTable(crc32.Castagnoli)))
	}
	for _, c := range []struct {
		name, cause, want string
		change            func(p *[wire.HeaderLen]byte)
	}{
		{"other magic", "magic", "wire: frame: magic: want 0x7654, found 0x0000", func(p *[wire.HeaderLen]byte) { p[0], p[1] = 0, 0 }},
		{"HTTP", "magic", "(an HTTP request", func(p *[wire.HeaderLen]byte) { copy(p[:], "POST /v1 HTTP/1.1") }},
		{"HTTP 2", "magic", "(an HTTP request", func(p *[wire.HeaderLen]byte) { copy(p[:], "PRI * HTTP/2.0") }},
		{"TLS", "magic", "(a TLS client", func(p *[wire.HeaderLen]byte) { copy(p[:], "\x16\x03\x01\x02\x00\x01") }},
		{"other version", "version", "this program speaks version 1, the peer 2", func(p *[wire.HeaderLen]byte) { p[2] = 2; seal(p) }},
		{"damaged", "checksum", "of a header: want 0x", func(p *[wire.HeaderLen]byte) { p[20]++ }},
		{"too long", "length", "at most 67108864 bytes, found 67108865", func(p *[wire.HeaderLen]byte) { binary.LittleEndian.PutUint32(p[4:], 64<<20+1); seal(p) }},
		{"head beyond the frame", "length", "a head of 30874 bytes in a frame of 30873", func(p *[wire.HeaderLen]byte) { binary.LittleEndian.PutUint32(p[4:], 30873); seal(p) }},
		{"unknown flag", "flags", "unknown flags 0x8000", func(p *[wire.HeaderLen]byte) { p[39] |= 0x80; seal(p) }},
	} {
		h := header()
		var p [wire.HeaderLen]byte
		h.Put(&p)
		c.change(&p)
		var back wire.Header
		var bad *wire.FrameError
		err := back.Parse(&p)
		if !errors.As(err, &bad) || bad.Cause != c.cause || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want the cause %s and %q", c.name, err, c.cause, c.want)
		}
		if back != (wire.Header{}) && c.cause != "length" && c.cause != "flags" {
			t.Errorf("%s: a refused header was written", c.name)
		}
	}
	// The most that is allowed is accepted.
	h := wire.Header{Length: wire.MaxFrame, Head: wire.MaxHead, Flags: wire.Summed | wire.Internal}
	var p [wire.HeaderLen]byte
	h.Put(&p)
	if err := new(wire.Header).Parse(&p); err != nil {
		t.Error(err)
	}
}

func TestHeaderAllocations(t *testing.T) {
	h := header()
	var p [wire.HeaderLen]byte
	body := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		h.Sum = wire.Sum(p[:4], body)
		h.Put(&p)
		if err := h.Parse(&p); err != nil {
			t.Fatal(err)
		}
		h.Stream = wire.StreamID("collective")
	}); n != 0 {
		t.Errorf("%v allocations for a header written and read, want none", n)
	}
}

func TestOp(t *testing.T) {
	for _, c := range []struct {
		step  uint64
		index uint32
	}{{0, 0}, {1, 0}, {0, 1}, {1<<44 - 1, 1<<20 - 1}, {17, 5}} {
		if op := wire.MakeOp(c.step, c.index); op.Step() != c.step || op.Index() != c.index {
			t.Errorf("step %d, index %d came back as %d, %d", c.step, c.index, op.Step(), op.Index())
		}
	}
	if wire.MakeOp(1, 1<<20-1) >= wire.MakeOp(2, 0) {
		t.Error("a later step does not have the larger Op")
	}
	if op := wire.MakeOp(3, math.MaxUint32); op.Step() != 3 {
		t.Errorf("an index of more than 20 bits changes the step to %d", op.Step())
	}
}

func TestSum(t *testing.T) {
	// RFC 3720, appendix B.4: 32 bytes of zeros, and 0 to 31.
	zeros, rising := make([]byte, 32), make([]byte, 32)
	for i := range rising {
		rising[i] = byte(i)
	}
	if s := wire.Sum(zeros); s != 0x8a9136aa {
		t.Errorf("of zeros: %#08x", s)
	}
	if s := wire.Sum(rising); s != 0x46dd794e {
		t.Errorf("of 0 to 31: %#08x", s)
	}
	if wire.Sum(rising[:5], nil, rising[5:]) != wire.Sum(rising) || wire.Sum() != 0 {
		t.Error("the sum of parts is not that of the whole")
	}
}

func TestStreamID(t *testing.T) {
	// The published values of 32-bit FNV-1a.
	for s, want := range map[string]uint32{"": 0x811c9dc5, "a": 0xe40c292c, "foobar": 0xbf9cf968} {
		if id := wire.StreamID(s); id != want {
			t.Errorf("%q: %#08x, want %#08x", s, id, want)
		}
	}
	seen := map[uint32]string{0: "the transport's own"}
	for _, s := range []string{"cluster", "ps", "collective", "session", "meta", "gossip", "dataflow", "data", "bench", "logs", "job", "app"} {
		if other, ok := seen[wire.StreamID(s)]; ok {
			t.Errorf("%q has the number of %q", s, other)
		}
		seen[wire.StreamID(s)] = s
	}
}

// FuzzHeader parses any 48 bytes: no panic, what is accepted comes back the same bytes, and is within the limits.
func FuzzHeader(f *testing.F) {
	h := header()
	var p [wire.HeaderLen]byte
	h.Put(&p)
	f.Add(p[:], false)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n"), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		var p [wire.HeaderLen]byte
		copy(p[:], b)
		if seal { // or hardly any input would pass the checksum
			binary.LittleEndian.PutUint16(p[:], wire.Magic)
			p[2] = wire.Version
			binary.LittleEndian.PutUint32(p[44:], crc32.Checksum(p[:44], crc32.MakeTable(crc32.Castagnoli)))
		}
		var h wire.Header
		if err := h.Parse(&p); err != nil {
			var bad *wire.FrameError
			if !errors.As(err, &bad) || bad.Cause == "" {
				t.Fatalf("error %v has no cause", err)
			}
			return
		}
		if h.Length > wire.MaxFrame || uint32(h.Head) > h.Length {
			t.Fatalf("accepted %+v", h)
		}
		var back [wire.HeaderLen]byte
		if h.Put(&back); back != p {
			t.Fatalf("%x came back as %x", p, back)
		}
	})
}

func BenchmarkHeader(b *testing.B) {
	h := header()
	var p [wire.HeaderLen]byte
	for b.Loop() {
		h.Put(&p)
		if err := h.Parse(&p); err != nil {
			b.Fatal(err)
		}
	}
}
