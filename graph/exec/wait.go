package exec

import "context"

type wait struct{}
type queue struct{}
type accumulator struct{}
type scan struct{}
type Rendezvous interface{}

func bindAccumApply(b *bound)                        {}
func bindSend(b *bound)                              {}
func (x *instance) execSegments(ctx context.Context) {}
