package kernel

import "unsafe"

// A tile is the argument of a micro-kernel: a row of tiles of C, each as wide as two vectors (or one). Steps and strides are in bytes.
//
//	for each panel of columns, until n are done:
//	    sum[i][j] = 0
//	    for p := range k: sum[i][j] = fma(a[i*aRow + p*aStep], b[p*bStep + j], sum[i][j])
//	    the epilogue; c[i*cRow + j] = sum[i][j]
//	    b += bPanel, c += a panel's width
type tile struct {
	a           unsafe.Pointer // offset 0
	aRow, aStep int            // 8, 16
	b           unsafe.Pointer // 24
	bStep       int            // 32
	bPanel      int            // 40
	c           unsafe.Pointer // 48
	cRow        int            // 56
	bias        unsafe.Pointer // 64
	m, n, k     int            // 72, 80, 88
	flags       int            // 96
	deltas      unsafe.Pointer // 104: k steps through A, in place of aStep, for convolutions
}

// What a micro-kernel does with its sums before it stores them.
const (
	tileAdd  = 1 << iota // add them to C
	tileBias             // add the bias
	tileReLU
)
