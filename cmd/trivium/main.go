// Command trivium trains machine-learning models; "trivium help" says what it can do. All of it is package app, so that a program
// with models of its own has every verb as well: examples/ownmodel shows how.
package main

import (
	"github.com/trivium-ml/trivium/app"
	"github.com/trivium-ml/trivium/nn"
)

func main() { app.Main(app.Options{Models: nn.Standard()}) }
