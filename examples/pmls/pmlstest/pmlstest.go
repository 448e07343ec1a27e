// Package pmlstest trains a model of an example as a user would: with several workers and servers, in one process and in processes of their own.
package pmlstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/transport"
)

// Train trains model on rows, with so many workers and one server, and returns what rank 0 does. env may say where checkpoints go.
func Train(t testing.TB, env train.Env, job trivium.Job, model nn.Builder, rows data.Dataset, workers int, o server.Options) trivium.Result {
	t.Helper()
	job.Version, job.Model, job.Data = trivium.JobVersion, "it", trivium.Data{Source: "rows", Order: "index", Train: "0:"}
	job.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 1}
	env.Models = nn.Models{"it": model}
	env.Sources = data.Sources{"rows": func(context.Context, trivium.Data) (*data.Splits, error) { return &data.Splits{Train: rows}, nil }}
	network := transport.NewMemory()
	var names []transport.Name
	var ports []transport.Port
	for i := range workers + 1 {
		n := transport.Name{Role: "worker", ID: fmt.Sprint(i)}
		port, err := network.Open(t.Context(), n, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer port.Close()
		names, ports = append(names, n), append(ports, port)
	}
	for _, a := range ports {
		for _, b := range ports {
			if a != b {
				if err := a.Know(b.Name(), b.Addr()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	results, errs := make([]trivium.Result, workers), make([]error, workers+1)
	working, abort := context.WithCancelCause(t.Context())
	defer abort(nil)
	serving, end := context.WithCancel(t.Context())
	defer end()
	var wait, served sync.WaitGroup
	for i := range workers + 1 {
		own := env
		own.Rank, own.Peers, own.Servers, own.Port, own.Epoch = i, names[:workers], names[workers:], ports[i], 1
		if i == workers {
			own.Rank, own.Role, own.Blob = 0, observe.Server, nil
			served.Go(func() { _, errs[i] = server.New(own, o).Train(serving, &job) })
			continue
		}
		if i > 0 {
			own.Blob = nil
		}
		own.CPU = tensor.NewCPU(1, false)
		defer own.CPU.Close()
		wait.Go(func() {
			if results[i], errs[i] = server.New(own, o).Train(working, &job); errs[i] != nil {
				abort(&train.LostError{Peer: own.Port.Name(), Why: errs[i].Error()})
			}
		})
	}
	wait.Wait()
	end()
	served.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return results[0]
}
