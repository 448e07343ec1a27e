package collective

import (
	"testing"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/transport"
)

// TestResidualOfWhatCounts: an operation that completes at all ranks while one of them gives it up is committed, if all have voted by then; and its
// residual is what it left. Where the step does not count, or the group fails, it is what it was before.
func TestResidualOfWhatCounts(t *testing.T) {
	for name, v := range map[string]struct {
		then func(c *core, vote *tally)
		want float32
	}{
		"it counts":       {func(c *core, _ *tally) { c.advance() }, 5},
		"it does not":     {func(c *core, vote *tally) { vote.note(fault{cause: Canceled, rank: 1}); c.advance() }, 0},
		"the group fails": {func(c *core, _ *tally) { c.triggerWhole(fault{cause: Lost, rank: 2}); c.now = lostWait; c.tick() }, 0},
	} {
		o, err := Options{NotFinite: Skip}.resolve()
		if err != nil {
			t.Fatal(err)
		}
		c := newCore(0, View{Epoch: 1, Peers: []transport.Name{{ID: "0"}, {ID: "1"}, {ID: "2"}}}, &o)
		op := c.start(Op{}, 0, Of(make([]float32, 10)), Of(make([]float32, 10)), nil)
		e := compress.NewResidual(10)
		c.save(op, e)
		e.Cells()[0] = 5 // as an encoding leaves it
		c.end(op, nil)
		vote := c.commit(0, nil)
		c.convict(c.incident(false, 0, 0), &fault{cause: Canceled, rank: 1})
		vote.have = 1<<1 | 1<<2
		if v.then(c, vote); !vote.over || e.Cells()[0] != v.want {
			t.Errorf("%s: %+v, and the residual is %v, want %v", name, vote, e.Cells()[0], v.want)
		}
	}
}
