package transport_test

import (
	"testing"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/transport/transporttest"
)

func TestUnix(t *testing.T) {
	transporttest.Run(t, transporttest.Kit{
		Open:   func(t *testing.T) transport.Network { return transport.Unix{Dir: t.TempDir(), Sockets: true} },
		Allocs: 0.1,
	})
}

func TestNearest(t *testing.T) {
	transporttest.Run(t, transporttest.Kit{
		Open:   func(t *testing.T) transport.Network { return transport.Nearest{Unix: transport.Unix{Dir: t.TempDir()}} },
		Allocs: 0.1,
	})
}
