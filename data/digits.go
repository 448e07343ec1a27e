package data

import (
	"context"
	"fmt"
	"math"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
)

const (
	digitSide      = 28
	digitPixels    = digitSide * digitSide
	digitsTrain    = 60_000
	digitsTest     = 10_000
	digitsTestFrom = 1_000_000 // the first test image; training images stay below it
)

// digitStrokes are the digits' control points in hundredths of the box, x right and y down; each line is one pen stroke.
var digitStrokes = [10][][][2]float64{
	{{{50, 5}, {25, 15}, {15, 50}, {25, 85}, {50, 95}, {75, 85}, {85, 50}, {75, 15}, {50, 5}}},
	{{{35, 20}, {55, 5}, {52, 95}}},
	{{{20, 25}, {35, 7}, {65, 7}, {80, 28}, {60, 55}, {20, 93}, {82, 93}}},
	{{{20, 12}, {55, 5}, {78, 25}, {50, 47}, {80, 70}, {55, 95}, {20, 87}}},
	{{{60, 5}, {18, 62}, {85, 62}}, {{66, 35}, {62, 95}}},
	{{{78, 6}, {30, 7}, {25, 45}, {60, 42}, {80, 67}, {58, 93}, {20, 90}}},
	{{{68, 6}, {35, 30}, {22, 65}, {40, 94}, {70, 88}, {76, 65}, {55, 50}, {26, 66}}},
	{{{18, 8}, {82, 8}, {55, 50}, {42, 95}}},
	{{{50, 50}, {25, 30}, {45, 6}, {72, 22}, {50, 50}, {24, 74}, {48, 95}, {76, 76}, {50, 50}}},
	{{{74, 34}, {45, 48}, {25, 28}, {45, 6}, {72, 15}, {74, 34}, {68, 65}, {55, 95}}},
}

// Digits generates an MNIST-shaped set: 60,000 training and 10,000 test images of 28 × 28 bytes with labels 0 to 9, drawn as randomly
// moved and sheared pen strokes. Rows of Data is the number of training images; one sixth as many test images follow. Pixels are
// divided by 255, as those of MNIST.
func Digits(ctx context.Context, d trivium.Data) (*Splits, error) { return digits(ctx, d, false) }

func digits(ctx context.Context, d trivium.Data, late bool) (*Splits, error) {
	train, test := d.Rows, int64(digitsTest)
	if train == 0 {
		train = digitsTrain
	} else {
		test = max(1, train/6)
	}
	if train > digitsTestFrom {
		return nil, setting("rows", "there are at most %d generated digits to train on, found %d", digitsTestFrom, train)
	}
	g := images(imageSchema([]int{digitSide, digitSide, 1}, 10), Digit)
	g.late = late
	note := fmt.Sprintf("digits, %s + %s images of %d × %d", grouped(train), grouped(test), digitSide, digitSide)
	return g.splits(ctx, note, train, digitsTestFrom, test)
}

func imageSchema(shape []int, classes int) trivium.Schema {
	return tableSchema(shape, classNumbers(classes))
}

// classNumbers names n classes 0, 1, ….
func classNumbers(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	return names
}

// Digit draws generated image i into dst, 28 × 28 bytes by rows, and returns its label. All arithmetic is float64 with every product
// rounded before it is added, so that no machine fuses and all draw the same bytes.
func Digit(dst []byte, i int64) int32 {
	label := draw.Bits(generatorSeed, 3, uint64(i)) % 10
	next := uint64(i) * 64
	r := func() float64 {
		v := float64(draw.Unit(generatorSeed, 4, next))
		next++
		return v
	}
	a := 1 + float64(0.25*r())
	d := 1 + float64(0.25*r())
	b := float64(0.40 * r())
	c := float64(0.20 * r())
	tx := float64(1.5 * r())
	ty := float64(1.5 * r())
	reach := 1.3 + float64(0.5*r()) + 0.5 // half-width + ½: where ink ends

	dst = dst[:digitPixels]
	var nearest [digitPixels]float64 // squared distance to the nearest segment, where below reach²
	for p := range nearest {
		nearest[p] = math.Inf(1)
	}
	for _, stroke := range digitStrokes[label] {
		var x0, y0 float64
		for n, point := range stroke {
			px := point[0]/100 + float64(0.12*r())
			py := point[1]/100 + float64(0.12*r())
			px, py = float64(18*(px-0.5)), float64(20*(py-0.5))
			x1 := float64(a*px) + float64(b*py) + 13.5 + tx
			y1 := float64(c*px) + float64(d*py) + 13.5 + ty
			if n > 0 {
				markSegment(&nearest, x0, y0, x1, y1, reach)
			}
			x0, y0 = x1, y1
		}
	}
	for p, n := range nearest {
		ink := reach - math.Sqrt(n)
		dst[p] = byte(255 * min(max(ink, 0), 1))
	}
	return int32(label)
}

// markSegment lowers nearest to the squared distance from the segment for the pixels that it can reach: those farther than reach are
// blank whatever their distance.
func markSegment(nearest *[digitPixels]float64, x0, y0, x1, y1, reach float64) {
	left := max(0, int(math.Floor(min(x0, x1)-reach)))
	right := min(digitSide-1, int(math.Ceil(max(x0, x1)+reach)))
	top := max(0, int(math.Floor(min(y0, y1)-reach)))
	bottom := min(digitSide-1, int(math.Ceil(max(y0, y1)+reach)))
	dx, dy := x1-x0, y1-y0
	length := float64(dx*dx) + float64(dy*dy) + 1e-9
	for y := top; y <= bottom; y++ {
		py := float64(y) - y0
		for x := left; x <= right; x++ {
			px := float64(x) - x0
			t := (float64(px*dx) + float64(py*dy)) / length
			t = min(max(t, 0), 1)
			ex, ey := px-float64(t*dx), py-float64(t*dy)
			e := float64(ex*ex) + float64(ey*ey)
			if p := y*digitSide + x; e < nearest[p] {
				nearest[p] = e
			}
		}
	}
}
