package kernel

import "unsafe"

// gemmGo is the portable twin of Gemm: rows of C are sums of rows of op(B), so that each element's chain ascends in k. The race detector
// is told by Gemm what is read, and does not look into its loops: that took four fifths of the time of tests that train.
//
//go:norace
func gemmGo[T Float](isa ISA, ta, tb bool, m, n, k int, a []T, lda int, b []T, ldb int, c []T, ldc int, ep Epilogue[T], w *Workspace[T]) {
	kc := depth[T]()
	// A block of op(B) and two rows of sums fit the caches: 384 × 256 × 4 bytes.
	const cols = 256
	packed := room(&w.b, min(kc, max(k, 1))*min(n, cols))
	sums := room(&w.c, (m+1)*min(n, cols))
	for j0 := 0; j0 < n; j0 += cols {
		nc := min(cols, n-j0)
		total, block := sums[:m*nc], sums[m*nc:][:nc]
		clear(total)
		for p0 := 0; p0 < k; p0 += kc {
			pc := min(kc, k-p0)
			bb, ldbb := packed, nc
			if tb {
				for p := range pc {
					for j := range nc {
						packed[p*nc+j] = b[(j0+j)*ldb+p0+p]
					}
				}
			} else {
				bb, ldbb = b[p0*ldb+j0:], ldb
			}
			for i := range m {
				first, step := i*lda+p0, 1
				if ta {
					first, step = p0*lda+i, lda
				}
				clear(block)
				p := 0
				for ; isa == Go && p+4 <= pc; p += 4 {
					x := [4]T{a[first+p*step], a[first+(p+1)*step], a[first+(p+2)*step], a[first+(p+3)*step]}
					accumulate4(block, x, bb[p*ldbb:], bb[(p+1)*ldbb:], bb[(p+2)*ldbb:], bb[(p+3)*ldbb:])
				}
				for ; p < pc; p++ {
					accumulate(isa, block, a[first+p*step], bb[p*ldbb:][:nc])
				}
				t := total[i*nc:][:nc]
				if p0 == 0 {
					copy(t, block)
					continue
				}
				for j, s := range block {
					t[j] += s
				}
			}
		}
		e := ep
		if e.Bias != nil {
			e.Bias = e.Bias[j0:]
		}
		finish(isa, m, nc, total, nc, c[j0:], ldc, e)
	}
}

// accumulate is s[j] += x * b[j], fused unless isa is Go. Who calls it tells the race detector what is read.
//
//go:norace
func accumulate[T Float](isa ISA, s []T, x T, b []T) {
	b = b[:len(s)]
	if isa == Go {
		for j := range s {
			s[j] += T(x * b[j])
		}
		return
	}
	for j := range s {
		s[j] = fma(x, b[j], s[j])
	}
}

// accumulate4 is accumulate of four terms in order, without fusing: s is read and written once for the four.
//
//go:norace
func accumulate4[T Float](s []T, x [4]T, b0, b1, b2, b3 []T) {
	n := len(s)
	b0, b1, b2, b3 = b0[:n], b1[:n], b2[:n], b3[:n]
	for j, t := range s {
		t += T(x[0] * b0[j])
		t += T(x[1] * b1[j])
		t += T(x[2] * b2[j])
		t += T(x[3] * b3[j])
		s[j] = t
	}
}

// aligned returns n zeros that start on a cache line.
func aligned[T Float](n int) []T {
	const line = 64
	var x T
	size := int(unsafe.Sizeof(x))
	s := make([]T, n+line/size)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(s)))%line) / size
	return s[off:][:n:n]
}
