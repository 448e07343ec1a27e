package ps
import ("testing";"fmt";"os";"strconv";"github.com/trivium-ml/trivium/sim")
func TestDbg(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SEED"))
	w := sim.New(uint64(n), sim.Options{Trace: true})
	plan, run := scene(w); if s := os.Getenv("PLAN"); s != "" { plan, _ = sim.ParsePlan(s) }
	err := run(plan)
	for l := range w.Trace() { fmt.Println(l) }
	fmt.Println(err)
}
