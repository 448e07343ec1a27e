package lda

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSampler: the sparse sampler draws each topic as often as the formula of Griffiths and Steyvers (2004, equation 5) has it, which is evaluated
// here as it stands, and its loss is minus the log probability of the word. The document's first word is drawn: its topics, and those of the word,
// are some of all.
func TestSampler(t *testing.T) {
	const seed, draws, vocabulary = 4, 200_000, 30
	totals := []int32{40, 3, 0, 25, 7}
	row := []int32{4, 0, 0, 6, 1} // how often the word is of each topic, all told
	topics := []uint16{3, 0, 3, 1, 3, 3}
	m := &Model{Options: Options{Topics: len(totals), Alpha: 0.4, Beta: 0.3}, vocabulary: vocabulary, draw: rand.New(rand.NewPCG(seed, 1))}
	m.total, m.turn = totals, make([]int32, len(totals))
	m.s.init(m)
	d := &document{topics: topics}
	m.s.open(m, d)
	moved := make([]int32, len(row))
	m.s.move(m, row, moved, int(topics[0]), -1)

	var weights []float64
	var all, word float64
	for k := range totals {
		nd, nw, n := 0.0, float64(row[k]), float64(totals[k])
		for _, x := range topics[1:] {
			if int(x) == k {
				nd++
			}
		}
		if k == int(topics[0]) {
			n--
		}
		ofWord := (nw + m.Beta) / (n + vocabulary*m.Beta)
		weights = append(weights, ofWord*(nd+m.Alpha))
		all += ofWord * (nd + m.Alpha)
		word += ofWord * (nd + m.Alpha) / (float64(len(topics)-1) + float64(len(totals))*m.Alpha)
	}
	if row[3] != 5 || moved[3] != -1 || m.turn[3] != -1 {
		t.Fatalf("the word was not taken out of its topic: %v, %v, %v", row, moved, m.turn)
	}
	times := make([]float64, len(totals))
	for range draws {
		times[m.s.pick(m, row, len(topics))]++
	}
	for k, w := range weights {
		p := w / all
		if off := times[k]/draws - p; !(math.Abs(off) <= 4*math.Sqrt(p*(1-p)/draws)) { // four standard deviations
			t.Errorf("seed %d: topic %d was drawn in %v of all draws, want %v", seed, k, times[k]/draws, p)
		}
	}
	if loss := m.s.loss / m.s.drawn; !(math.Abs(loss+math.Log(word)) <= 1e-9) {
		t.Errorf("the loss of a word is %v, want %v", loss, -math.Log(word))
	}
}
