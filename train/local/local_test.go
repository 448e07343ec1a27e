package local_test

import (
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/traintest"
)

func TestStrategy(t *testing.T) {
	traintest.Run(t, func(env train.Env) trivium.Strategy { return local.New(env, local.Options{}) })
}
