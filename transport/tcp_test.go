package transport_test

import (
	"testing"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/transport/transporttest"
)

func TestTCP(t *testing.T) {
	transporttest.Run(t, transporttest.Kit{
		Open:   func(*testing.T) transport.Network { return transport.TCP{} },
		Skip:   map[string]string{"OpenTwice": "two listeners of one name have two ports: it is the peers that refuse the second"},
		Allocs: 0.1,
	})
}
