"""Training throughput of MXNet's Module: mxnet_module.py TASK BATCH THREADS SECONDS. Prints samples/s.

TASK is softmax, mlp:100 or mlp:128,32; BATCH a number. SGD at 0.1, float32, batches are made before the clock starts.
"""
import os
import sys
import time

task, batch, threads, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = threads
import mxnet as mx
import numpy as np

rng = np.random.default_rng(42)
rows, cols = 10_000, 784
hidden = [int(h) for h in task[4:].split(",")] if task.startswith("mlp:") else []
net = mx.sym.Variable("data")
for i, h in enumerate(hidden):
    net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=h, name=f"fc{i}"), act_type="relu")
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10, name="out"), name="softmax")
x, y = rng.random((rows, cols), dtype=np.float32), rng.integers(0, 10, rows).astype(np.float32)
batches = [mx.io.DataBatch(data=[mx.nd.array(x[i:i + batch])], label=[mx.nd.array(y[i:i + batch])])
           for i in range(0, rows - batch + 1, batch)]
module = mx.mod.Module(net, context=mx.cpu())
module.bind(data_shapes=[("data", (batch, cols))], label_shapes=[("softmax_label", (batch,))])
module.init_params(mx.init.Xavier())
module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.1, "rescale_grad": 1 / batch})


def run(until):
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < until:
        for b in batches:
            module.forward_backward(b)
            module.update()
            done += batch
        mx.nd.waitall()
    return done / (time.perf_counter() - start)


run(seconds / 2)
print(run(seconds))
