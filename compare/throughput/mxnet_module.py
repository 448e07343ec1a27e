"""Training throughput of MXNet's Module: mxnet_module.py THREADS, then turns.py's lines on standard input.

Tasks are softmax, mlp:100 and mlp:128,32; a batch is a number. SGD at 0.1, float32, batches are made before the clock starts.
"""
import os
import sys

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = sys.argv[1]
import mxnet as mx
import numpy as np

import turns

rng = np.random.default_rng(42)
rows, cols = 10_000, 784
x, y = turns.inputs(rng, rows, cols), rng.integers(0, 10, rows).astype(np.float32)


def make(task, batch, _):
    batch = int(batch)
    hidden = [int(h) for h in task[4:].split(",")] if task.startswith("mlp:") else []
    net = mx.sym.Variable("data")
    for i, h in enumerate(hidden):
        net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=h, name=f"fc{i}"), act_type="relu")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10, name="out"), name="softmax")
    batches = [mx.io.DataBatch(data=[mx.nd.array(x[i:i + batch])], label=[mx.nd.array(y[i:i + batch])])
               for i in range(0, rows - batch + 1, batch)]
    module = mx.mod.Module(net, context=mx.cpu())
    module.bind(data_shapes=[("data", (batch, cols))], label_shapes=[("softmax_label", (batch,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.1, "rescale_grad": 1 / batch})

    def epoch(_):
        for b in batches:
            module.forward_backward(b)
            module.update()
        mx.nd.waitall()
        return batch * len(batches)

    return epoch


turns.serve(make)
