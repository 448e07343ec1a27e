package transport_test

import (
	"testing"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/transport/transporttest"
)

func TestMemory(t *testing.T) {
	open := func(*testing.T) transport.Network { return transport.NewMemory() }
	t.Run("real", func(t *testing.T) { transporttest.Run(t, transporttest.Kit{Open: open}) })
	t.Run("bubble", func(t *testing.T) { transporttest.Run(t, transporttest.Kit{Open: open, Bubble: true}) })
}
