package transport_test

import (
	"testing"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/transport/transporttest"
)

// TestTCP: "summed" is with the checksums that payloads have between hosts.
func TestTCP(t *testing.T) {
	for name, n := range map[string]transport.TCP{"plain": {}, "summed": {Sum: transport.SumAlways}} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Kit{
				Open:   func(*testing.T) transport.Network { return n },
				Skip:   map[string]string{"OpenTwice": "two listeners of one name have two ports: it is the peers that refuse the second"},
				Allocs: 0.1,
			})
		})
	}
}
