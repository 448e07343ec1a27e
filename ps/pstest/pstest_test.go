package pstest_test

import (
	"testing"

	"github.com/trivium-ml/trivium/ps/pstest"
	"github.com/trivium-ml/trivium/transport"
)

func TestMemory(t *testing.T) {
	pstest.Run(t, func(testing.TB) transport.Network { return transport.NewMemory() })
}

func TestUnix(t *testing.T) {
	pstest.Run(t, func(t testing.TB) transport.Network { return &transport.Unix{Dir: t.TempDir()} })
}

func TestTCP(t *testing.T) {
	pstest.Run(t, func(testing.TB) transport.Network { return &transport.TCP{} })
}
