package elementary_test

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/internal/elementary"
)

// functions are those of this package, by name.
var functions = map[string]func(float64) float64{
	"Exp": elementary.Exp, "Log": elementary.Log, "Log1p": elementary.Log1p, "CosPi": elementary.CosPi,
}

// A result is the bits of a function's value.
type result struct {
	function string
	x        float64
	bits     uint64
}

// results are what every processor has. They change only when this package does, and all models with them; then they are replaced by what
// TestSameBits prints, which must be the same on amd64 and arm64.
var results = []result{
	{"Exp", 0, 0x3ff0000000000000},
	{"Exp", 1, 0x4005bf0a8b14576a},
	{"Exp", -1, 0x3fd78b56362cef38},
	{"Exp", 0.1, 0x3ff1aec7b35a00d4},
	{"Exp", -0.25, 0x3fe8ebef9eac820b},
	{"Exp", 10.3, 0x40dd09279b492870},
	{"Exp", -36.7, 0x3ca0998b04bdd190},
	{"Exp", 709.7, 0x7fed75ae7a50ee14},
	{"Exp", -708.3, 0x119e98b83de7a3},
	{"Exp", -740, 0x55},
	{"Log", 1, 0},
	{"Log", 2, 0x3fe62e42fefa39ef},
	{"Log", 0.1, 0xc0026bb1bbb55515},
	{"Log", 0.5000001, 0xbfe62e42939a7039},
	{"Log", 0.9, 0xbfbaf8e8210a415c},
	{"Log", 0.999, 0xbf5064670d979b73},
	{"Log", 1.0000001, 0x3e7ad7f2847b6492},
	{"Log", 3, 0x3ff193ea7aad030a},
	{"Log", 1e-16, 0xc0426bb1bbb55516},
	{"Log", 1e300, 0x4085963447f87fb5},
	{"Log", 5e-324, 0xc0874385446d71c3},
	{"Log1p", 1e-20, 0x3bc79ca10c924223},
	{"Log1p", 1e-09, 0x3e112e0be801f1d9},
	{"Log1p", 0.1, 0x3fb8663f793c46c7},
	{"Log1p", 0.7, 0x3fe0fae81914a991},
	{"Log1p", -0.3, 0xbfd6d3c324e13f4f},
	{"CosPi", 0, 0x3ff0000000000000},
	{"CosPi", 0.5, 0},
	{"CosPi", 1, 0xbff0000000000000},
	{"CosPi", 0.001, 0x3feffff5a6a681ff},
	{"CosPi", 0.1, 0x3fee6f0e134454ff},
	{"CosPi", 0.25, 0x3fe6a09e667f3bcd},
	{"CosPi", 0.4999999, 0x3e9515370f9c90fe},
	{"CosPi", 0.6, 0xbfd3c6ef372fe94e},
	{"CosPi", 0.99, 0xbfeffbf52e9d1086},
	{"CosPi", 1.3, 0xbfe2cf2304755a5d},
	{"CosPi", 1.7, 0x3fe2cf2304755a5d},
	{"CosPi", 123456.789, 0xbfe93924eb2ceff4},
}

// sums are hashes (FNV-1a) of 20,000 values of each, and change as results do.
var sums = map[string]uint64{
	"Exp":   0x809e94f3278c0e71,
	"Log":   0xe6c179aa7e0b899e,
	"Log1p": 0x8dc3ae2d3e6d9df9,
	"CosPi": 0x4ad213671fad680,
}

// TestSameBits compares this machine with every other one. CI runs it on arm64 too, whose compiler fuses.
func TestSameBits(t *testing.T) {
	var found strings.Builder
	for _, want := range results {
		got := result{want.function, want.x, math.Float64bits(functions[want.function](want.x))}
		fmt.Fprintf(&found, "\t{%q, %v, %#x},\n", got.function, got.x, got.bits)
		if got != want {
			t.Errorf("%s(%v) is %v (%#x), want %#x", got.function, got.x, math.Float64frombits(got.bits), got.bits, want.bits)
		}
	}
	for _, name := range []string{"Exp", "Log", "Log1p", "CosPi"} {
		r, h := rand.New(rand.NewPCG(16, 16)), fnv.New64a()
		for range 20_000 {
			x := float64(r.Int64N(1<<53)) / (1 << 53) // as exact as its halvings
			switch name {
			case "Exp":
				x = float64(1400*x) - 700
			case "Log":
				x = math.Ldexp(1+x, r.IntN(2000)-1000)
			case "CosPi":
				x = math.Ldexp(x, r.IntN(20)-8)
			}
			_ = binary.Write(h, binary.LittleEndian, functions[name](x)) // a hash takes all
		}
		fmt.Fprintf(&found, "\t%q: %#x,\n", name, h.Sum64())
		if h.Sum64() != sums[name] {
			t.Errorf("%s: 20,000 values have the hash %#x, want %#x", name, h.Sum64(), sums[name])
		}
	}
	if t.Failed() {
		t.Logf("this machine has\n%s", found.String())
	}
}

func TestSpecialCases(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		function string
		x, want  float64
	}{
		{"Exp", inf, inf},
		{"Exp", -inf, 0},
		{"Exp", nan, nan},
		{"Exp", math.Copysign(0, -1), 1},
		{"Exp", 709.79, inf},
		{"Exp", -745.2, 0},
		{"Log", inf, inf},
		{"Log", -inf, nan},
		{"Log", nan, nan},
		{"Log", 0, -inf},
		{"Log", math.Copysign(0, -1), -inf},
		{"Log", -5e-324, nan},
		{"Log1p", inf, inf},
		{"Log1p", -inf, nan},
		{"Log1p", nan, nan},
		{"Log1p", 0, 0},
		{"Log1p", math.Copysign(0, -1), math.Copysign(0, -1)},
		{"Log1p", -1, -inf},
		{"Log1p", -1.5, nan},
		{"Log1p", 5e-324, 5e-324},
		{"CosPi", inf, nan},
		{"CosPi", -inf, nan},
		{"CosPi", nan, nan},
		{"CosPi", math.Copysign(0, -1), 1},
		{"CosPi", 5e-324, 1},
		{"CosPi", -0.5, 0},
		{"CosPi", -1, -1},
		{"CosPi", 1.5, 0},
		{"CosPi", 2, 1},
		{"CosPi", 2.5, 0},
		{"CosPi", 0x1p52 - 0.5, 0},
		{"CosPi", 0x1p52 + 1, -1},
		{"CosPi", 0x1p53, 1},
		{"CosPi", math.MaxFloat64, 1},
	} {
		got := functions[c.function](c.x)
		if math.Float64bits(got) != math.Float64bits(c.want) && (got == got || c.want == c.want) {
			t.Errorf("%s(%v) = %v, want %v", c.function, c.x, got, c.want)
		}
	}
}

// TestAccuracy compares with series of 256 bits, in units of the result's last place.
func TestAccuracy(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	anyOf := func(from, to float64) func() float64 { return func() float64 { return from + (to-from)*r.Float64() } }
	for _, c := range []struct {
		function, of string
		x            func() float64
		off          func(got, x float64) float64
		most         float64
	}{
		{"Exp", "-700 to 700", anyOf(-700, 700), offExp, 1},
		{"Exp", "-1 to 1", anyOf(-1, 1), offExp, 1},
		{"Log", "all exponents", func() float64 { return math.Ldexp(1+r.Float64(), r.IntN(2000)-1000) }, offLog, 1},
		{"Log", "0 to 2", anyOf(0, 2), offLog, 1},
		{"Log", "almost 1", anyOf(1-1e-6, 1+1e-6), offLog, 1},
		{"Log", "denormals", func() float64 { return math.Float64frombits(1 + r.Uint64N(1<<52-1)) }, offLog, 1},
		{"Log1p", "0 to 1", anyOf(0, 1), offLog1p, 2},
		{"Log1p", "small", func() float64 { return math.Ldexp(1+r.Float64(), -r.IntN(100)) }, offLog1p, 2},
		{"CosPi", "-2 to 2", anyOf(-2, 2), offCosPi, 1},
		{"CosPi", "0 to 100,000", anyOf(0, 1e5), offCosPi, 1},
		{"CosPi", "almost a half", anyOf(0.5-1e-6, 0.5+1e-6), offCosPi, 1},
	} {
		worst, at := 0.0, 0.0
		for range 1000 {
			x := c.x()
			if e := c.off(functions[c.function](x), x); !(e <= worst) {
				worst, at = e, x
			}
		}
		t.Logf("%s of %s: at most %.3f units in the last place, at %v", c.function, c.of, worst, at)
		if !(worst <= c.most) {
			t.Errorf("%s of %s is %v units in the last place off at %v, want at most %v", c.function, c.of, worst, at, c.most)
		}
	}
}

// number is x with 256 bits.
func number(x float64) *big.Float { return new(big.Float).SetPrec(256).SetFloat64(x) }

// units is d, an error of want, in units of want's last place, want being no denormal.
func units(d, want *big.Float) float64 {
	unit := new(big.Float).SetMantExp(number(1), want.MantExp(nil)-53)
	u, _ := unit.Quo(d, unit).Float64()
	return math.Abs(u)
}

func offExp(got, x float64) float64 {
	want := exp(number(x))
	return units(new(big.Float).Sub(number(got), want), want)
}

// offLog needs no logarithm: e to the power log x + d is x·(1+d), but for terms of d².
func offLog(got, x float64) float64 { return offLogOf(got, number(x)) }

func offLog1p(got, x float64) float64 { return offLogOf(got, new(big.Float).Add(number(1), number(x))) }

func offLogOf(got float64, x *big.Float) float64 {
	d := exp(number(got))
	d.Quo(d, x)
	return units(d.Sub(d, number(1)), number(got))
}

// exp is Taylor's series of x/2¹², squared twelve times; |x| < 1000.
func exp(x *big.Float) *big.Float {
	part := new(big.Float).SetMantExp(x, -12)
	sum, term := number(1), number(1)
	for n := 1.0; n <= 45; n++ {
		term.Mul(term, part)
		term.Quo(term, number(n))
		sum.Add(sum, term)
	}
	for range 12 {
		sum.Mul(sum, sum)
	}
	return sum
}

// offCosPi sums Taylor's series of at most 2π.
func offCosPi(got, x float64) float64 {
	const digits = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
	pi, _, err := big.ParseFloat(digits, 10, 256, big.ToNearestEven)
	if err != nil {
		panic(err)
	}
	square := new(big.Float).Mul(pi, number(math.Mod(x, 2)))
	square.Mul(square, square)
	sum, term := number(1), number(1)
	for n := 1.0; n <= 100; n += 2 {
		term.Mul(term, square)
		term.Quo(term, number(-n*(n+1)))
		sum.Add(sum, term)
	}
	return units(new(big.Float).Sub(number(got), sum), sum)
}
