"""MXNet's Module over a distributed key-value store, as its examples train: driven as compare/peers/README.md says.

The optimizer is at the server, as MXNet has it. `worker.py --detect` prints what is here.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import driven  # noqa: E402

if sys.argv[1:] == ["--detect"]:
    import mxnet
    driven.detected(mxnet=mxnet.__version__)
    sys.exit()

spec = driven.told("sync", "async")
place = spec["addresses"]
host, port = place["scheduler"][0].rsplit(":", 1)
os.environ.update({
    "DMLC_ROLE": spec["role"], "DMLC_PS_ROOT_URI": host, "DMLC_PS_ROOT_PORT": port, "DMLC_NUM_WORKER": str(spec["workers"]),
    "DMLC_NUM_SERVER": str(spec["servers"]), "DMLC_NODE_HOST": place[spec["role"]][spec["rank"]].rsplit(":", 1)[0],
    "DMLC_INTERFACE": spec["interface"],
})
if not driven.untouched(spec):
    os.environ.update({"OMP_NUM_THREADS": str(spec["threads"]), "MXNET_CPU_WORKER_NTHREADS": str(spec["threads"])})
if spec["role"] != "worker":
    driven.say("ready")
import mxnet as mx  # noqa: E402: a scheduler or server serves in here, and ends with the workers
import numpy as np  # noqa: E402


model, batch, init = spec["model"], spec["batch"], driven.tensors(spec["init"])
binary = model["outputs"] == 1
names = driven.names(model)
x, y = map(mx.nd.array, driven.own(spec))  # labels are float32 then
kv = mx.kv.create("dist_" + spec["mode"])
starts = 0


def start():
    """A module with the initial parameters: its keys are new, since a server keeps what a key has learned."""
    global module, prefix, starts
    starts += 1
    prefix = f"start{starts}_"
    net = mx.sym.Variable("data")
    for i, width in enumerate(model["hidden"] + [model["outputs"]]):
        net = mx.sym.FullyConnected(net, num_hidden=width, name=f"{prefix}{i}")
        if i < len(model["hidden"]):
            net = mx.sym.Activation(net, act_type="relu")
    net = (mx.sym.LogisticRegressionOutput if binary else mx.sym.SoftmaxOutput)(net, name="softmax")
    module = mx.mod.Module(net, context=mx.cpu())
    module.bind([("data", (batch, model["inputs"]))], [("softmax_label", (batch, 1) if binary else (batch,))])
    values = {}
    for i, (w, b) in enumerate(names):
        values[f"{prefix}{i}_weight"] = mx.nd.array(np.ascontiguousarray(init[w].T))  # kept as out x in
        values[f"{prefix}{i}_bias"] = mx.nd.array(init[b])
    module.init_params(arg_params=values)
    module.init_optimizer(kvstore=kv, optimizer="sgd", optimizer_params={"learning_rate": spec["rate"], "wd": 0.0})


def parameters():
    values, _ = module.get_params()
    out = {}
    for i, (w, b) in enumerate(names):
        out[w], out[b] = values[f"{prefix}{i}_weight"].asnumpy().T.copy(), values[f"{prefix}{i}_bias"].asnumpy()
    return out


def run(begin, end):
    for update in range(begin, end):
        at, to = driven.rows(spec, update, len(y))
        label = y[at:to]
        module.forward_backward(mx.io.DataBatch([x[at:to]], [label.reshape((batch, 1)) if binary else label]))
        module.update()
    mx.nd.waitall()


start()
driven.serve(spec, {"mxnet": mx.__version__}, run, parameters, start)
driven.say("done")
