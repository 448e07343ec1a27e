package kernel

import "math"

// The parts of an optimizer's step that the gradient of one of several workers makes, where each makes a step of its own: package train/server
// says why. All slices have the length of the first, and none may overlap another but where it is said. The bits are those of every ISA.

// leastPart is the length from which assembly pays: fewer cells take as long as to spread the parameters, and most rows of sparse models are shorter.
const leastPart = 8

// PartRememberParams are the arguments of PartRemember.
type PartRememberParams struct {
	Keep, Take float32 // of c, and of what is added to it
	L2, L1     float32 // add L2·p + L1·sign(p) to the gradient
	Clip       float32 // the most that a gradient is before that, on either side; 0: any
}

// PartRemember is c = Keep·c + (Take·r)·last, the mean of products of gradients that follow one another, or their sum; r, the gradient that a rule
// makes of g at p, is the last one then. With first it is r·r that counts. product is c.
func PartRemember(isa ISA, last, product, p, g []float32, h PartRememberParams, first bool) {
	product, p, g = product[:len(last)], p[:len(last)], g[:len(last)]
	if first { // nothing of c changes, and last becomes r
		only := h
		only.Keep, only.Take = 1, 0
		PartRemember(isa, last, product, p, g, only, false)
	}
	most := h.Clip
	if most == 0 {
		most = float32(math.Inf(1))
	}
	plain := h.L1 == 0 && h.L2 == 0 && h.Clip == 0
	if isa >= AVX2 && len(last) >= leastPart {
		var s stepParams
		for i, x := range [...]float32{h.Keep, h.Take, h.L2, h.L1, most, -most} {
			s.set(i, x)
		}
		if plain {
			partRememberF32(isa, last, product, g, &s[0])
		} else {
			partRememberRegF32(isa, last, product, g, p, &s[0])
		}
		return
	}
	regular := Regular{L1: h.L1, L2: h.L2}
	for i, r := range g {
		if !plain {
			r = regular.gradient(p[i], max(min(r, most), -most))
		}
		product[i] = float32(product[i]*h.Keep) + float32(float32(r*h.Take)*last[i])
		last[i] = r
	}
}

// PartScaleParams are the arguments of PartScale.
type PartScaleParams struct {
	Own, Others float32 // 1/by and (by-1)/by, where `by` gradients make an update
	Share       float32
}

// PartScale makes u, an update by a rule that divides by the root of n, the squares of gradients, one by the root of n' = Own·n + Others·max(c, 0),
// the squares of their mean: u *= Share·√(n/n') where 0 < n' < n, else Share.
func PartScale(isa ISA, u, n, product []float32, h PartScaleParams) {
	n, product = n[:len(u)], product[:len(u)]
	if isa >= AVX2 && len(u) >= leastPart {
		var s stepParams
		for i, x := range [...]float32{h.Own, h.Others, h.Share} {
			s.set(i, x)
		}
		partScaleF32(isa, u, n, product, &s[0])
		return
	}
	for i, v := range n {
		s := h.Share
		if of := float32(v*h.Own) + float32(max(product[i], 0)*h.Others); of > 0 && of < v {
			s = float32(sqrt(v/of) * s)
		}
		u[i] = float32(u[i] * s)
	}
}

// FTRLPartParams are the arguments of FTRLPart.
type FTRLPartParams struct {
	FTRLParams
	Own, Others float32 // 1/by and (by-1)/by, where `by` gradients make an update
	Times       float32 // what one optimizer's n is of that of so many gradients, once noise is out of it
	Share       float32 // of the gradient in one optimizer's
	AtZero      float32 // the same, where the parameter is 0
}

// FTRLPart is the part of an FTRL step that the gradient of one of several workers makes, where each makes a step of its own: package
// train/server says why. n += g² and c += g·last, where last is the gradient before, which becomes g: so n' = min(n, Own·n + Others·max(c, 0)) is
// of squares without the noise of single workers, and k = (Beta + √(Times·n'))/Alpha + L2. z is what puts p where it is, -p·k - sign(p)·L1, or
// where p is 0 what it was; Share·g, or AtZero·g, is added to it. The new parameter is 0 where |z| <= L1, else (sign(z)·L1 - z)/k: where p keeps its sign that
// is p - Share·g/k, and computed so, since all of p's digits would else be lost to the difference. u is the new parameter less p. last and
// product (c) must not overlap what else there is.
func FTRLPart(isa ISA, u, p, g, z, n, last, product []float32, h FTRLPartParams) {
	p, g, z, n, last, product = p[:len(u)], g[:len(u)], z[:len(u)], n[:len(u)], last[:len(u)], product[:len(u)]
	steep := 1 / h.Alpha
	if isa >= AVX2 && len(u) >= leastPart {
		var s stepParams
		for i, x := range [...]float32{steep, h.Beta, h.L1, h.L2, h.Own, h.Others, h.Times, h.Share, h.AtZero} {
			s.set(i, x)
		}
		ftrlPartF32(isa, u, z, n, last, product, p, g, &s[0])
		return
	}
	for i, p := range p {
		g, sum := g[i], z[i]
		n[i] += float32(g * g)
		product[i] += float32(g * last[i])
		last[i] = g
		mean := min(n[i], float32(n[i]*h.Own)+float32(max(product[i], 0)*h.Others))
		k := float32((sqrt(float32(mean*h.Times))+h.Beta)*steep) + h.L2
		part := float32(g * h.AtZero)
		if p != 0 {
			sum, part = -float32(p*k)-sign(p, h.L1), float32(g*h.Share)
		}
		sum += part
		switch {
		case abs(sum) <= h.L1:
			u[i] = 0 - p
		case p*sum < 0:
			u[i] = -part / k
		default:
			u[i] = (sign(sum, h.L1)-sum)/k - p
		}
		z[i] = sum
	}
}
