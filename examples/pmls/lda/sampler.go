package lda

import "math"

// A sampler draws topics. The weight of topic k for word w in document d, all without the word that is drawn, is
//
//	(n_dk + α)(n_kw + β)/(n_k + Vβ) = αβ/(n_k + Vβ) + n_dk·β/(n_k + Vβ) + (n_dk + α)·n_kw/(n_k + Vβ),
//
// whose first part is the same for all words, whose second only the document's topics have, and whose third only the word's.
type sampler struct {
	alpha, beta, v float64   // v: Vβ
	inverse        []float64 // 1 / (n_k + Vβ)
	n              []int32   // n_dk, of the document at hand
	of             []int32   // its topics
	place          []int32   // of a topic in of
	any, own       float64   // the first two parts' sums

	drawn, loss float64 // of a round
}

func (s *sampler) init(m *Model) {
	s.alpha, s.beta, s.v = m.Alpha, m.Beta, float64(m.vocabulary)*m.Beta
	s.inverse, s.n, s.place = make([]float64, m.Topics), make([]int32, m.Topics), make([]int32, m.Topics)
}

// sweep draws all words of a document anew.
func (s *sampler) sweep(m *Model, d *document, words []int32, times []float32) {
	s.open(m, d)
	at := 0
	for i, w := range words {
		base := m.at[w] * m.Topics
		row, moved := m.rows[base:base+m.Topics], m.moved[base:base+m.Topics]
		for range int(times[i]) {
			old := int(d.topics[at])
			s.move(m, row, moved, old, -1)
			k := s.pick(m, row, len(d.topics))
			s.move(m, row, moved, k, 1)
			d.topics[at] = uint16(k)
			at++
		}
	}
}

// open begins a document.
func (s *sampler) open(m *Model, d *document) {
	clear(s.n)
	s.of = s.of[:0]
	for _, k := range d.topics {
		if s.n[k]++; s.n[k] == 1 {
			s.place[k] = int32(len(s.of))
			s.of = append(s.of, int32(k))
		}
	}
	s.any, s.own = 0, 0
	for k, x := range m.total {
		s.inverse[k] = 1 / (float64(max(x+m.turn[k], 0)) + s.v)
		s.any += s.alpha * s.beta * s.inverse[k]
	}
	for _, k := range s.of {
		s.own += float64(s.n[k]) * s.beta * s.inverse[k]
	}
}

// move takes a word out of topic k, or puts it there. The worker's copy of a row and that of the totals may lack what others have just
// done, so that one may be 0 where this worker has a word: it stays 0 then.
func (s *sampler) move(m *Model, row, moved []int32, k int, by int32) {
	s.any -= s.alpha * s.beta * s.inverse[k]
	s.own -= float64(s.n[k]) * s.beta * s.inverse[k]
	moved[k] += by
	m.turn[k] += by
	row[k] = max(row[k]+by, 0)
	s.n[k] += by
	switch {
	case by > 0 && s.n[k] == 1:
		s.place[k] = int32(len(s.of))
		s.of = append(s.of, int32(k))
	case by < 0 && s.n[k] == 0:
		last := s.of[len(s.of)-1]
		s.of[s.place[k]], s.place[last] = last, s.place[k]
		s.of = s.of[:len(s.of)-1]
	}
	s.inverse[k] = 1 / (float64(max(m.total[k]+m.turn[k], 0)) + s.v)
	s.any += s.alpha * s.beta * s.inverse[k]
	s.own += float64(s.n[k]) * s.beta * s.inverse[k]
}

// pick draws a topic for a word of a document of so many words.
func (s *sampler) pick(m *Model, row []int32, words int) int {
	var third float64
	for k, x := range row {
		if x != 0 {
			third += (float64(s.n[k]) + s.alpha) * float64(x) * s.inverse[k]
		}
	}
	all := s.any + s.own + third
	s.loss -= math.Log(all / (float64(words-1) + float64(m.Topics)*s.alpha))
	s.drawn++
	u := m.draw.Float64() * all
	if u < third {
		last := 0
		for k, x := range row {
			if x == 0 {
				continue
			}
			last = k
			if u -= (float64(s.n[k]) + s.alpha) * float64(x) * s.inverse[k]; u < 0 {
				break
			}
		}
		return last
	}
	u -= third
	if u < s.own && len(s.of) > 0 {
		for _, k := range s.of {
			if u -= float64(s.n[k]) * s.beta * s.inverse[k]; u < 0 {
				return int(k)
			}
		}
		return int(s.of[len(s.of)-1])
	}
	u -= s.own
	for k, x := range s.inverse {
		if u -= s.alpha * s.beta * x; u < 0 {
			return k
		}
	}
	return len(s.inverse) - 1
}
