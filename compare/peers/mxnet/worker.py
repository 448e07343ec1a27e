"""MXNet's Module over a distributed key-value store, as its examples train: driven as compare/peers/README.md says.

The optimizer is at the server, as MXNet has it. `worker.py --detect` prints what is here.
"""
import json
import os
import sys
import time


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


if sys.argv[1:] == ["--detect"]:
    import mxnet
    print(json.dumps({"python": sys.version.split()[0], "mxnet": mxnet.__version__}))
    sys.exit()

spec = json.loads(sys.stdin.readline())
if spec["version"] != 1 or spec["mode"] not in ("sync", "async") or spec["full"]:
    sys.exit("this program does version 1, modes sync and async, and no full batch")
place = spec["addresses"]
host, port = place["scheduler"][0].rsplit(":", 1)
os.environ.update({
    "DMLC_ROLE": spec["role"], "DMLC_PS_ROOT_URI": host, "DMLC_PS_ROOT_PORT": port, "DMLC_NUM_WORKER": str(spec["workers"]),
    "DMLC_NUM_SERVER": str(spec["servers"]), "DMLC_NODE_HOST": place[spec["role"]][spec["rank"]].rsplit(":", 1)[0],
    "DMLC_INTERFACE": spec["interface"],
})
if not spec.get("extra", {}).get("untouched"):
    os.environ.update({"OMP_NUM_THREADS": str(spec["threads"]), "MXNET_CPU_WORKER_NTHREADS": str(spec["threads"])})
if spec["role"] != "worker":
    say("ready")
import mxnet as mx  # noqa: E402: a scheduler or server serves in here, and ends with the workers
import numpy as np  # noqa: E402


def tensors(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        body = f.read()
    head.pop("__metadata__", None)
    return {n: np.frombuffer(body[slice(*t["data_offsets"])], np.float32).reshape(t["shape"]) for n, t in head.items()}


def save(path, named):
    head, at = {}, 0
    for n, t in named.items():
        head[n] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(head).encode()
    with open(path + ".part", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(np.ascontiguousarray(t).tobytes() for t in named.values()))
    os.rename(path + ".part", path)


model, batch, init = spec["model"], spec["batch"], tensors(spec["init"])
binary = model["outputs"] == 1
names = [("w", "b")] if binary else [(f"w{i}", f"b{i}") for i in range(1, len(model["hidden"]) + 2)]
x, y = mx.nd.array(np.load(spec["train_x"])), mx.nd.array(np.load(spec["train_y"]).astype(np.float32))
kv = mx.kv.create("dist_" + spec["mode"])
starts = 0


def start():
    """A module with the initial parameters: its keys are new, since a server keeps what a key has learned."""
    global starts
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
    return module, prefix


def parameters():
    values, _ = module.get_params()
    out = {}
    for i, (w, b) in enumerate(names):
        out[w], out[b] = values[f"{prefix}{i}_weight"].asnumpy().T.copy(), values[f"{prefix}{i}_bias"].asnumpy()
    return out


module, prefix = start()
say("ready", versions={"mxnet": mx.__version__}, threads=spec["threads"])
t = done = 0
seconds = 0.0
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "reset":
        module, prefix = start()
        t = done = 0
        seconds = 0.0
        say("ready")
    elif command["do"] == "run":
        snapshots, kept = set(command.get("snapshots") or ()), []
        begin = time.perf_counter()
        for _ in range(command["updates"]):
            if t == spec["rows"] // (spec["workers"] * batch):
                t = 0
            at = (t * spec["workers"] + spec["rank"]) * batch
            label = y[at:at + batch]
            module.forward_backward(mx.io.DataBatch([x[at:at + batch]], [label.reshape((batch, 1)) if binary else label]))
            module.update()
            t, done = t + 1, done + 1
            if spec["rank"] == 0 and done in snapshots:
                mx.nd.waitall()
                seconds += time.perf_counter() - begin
                kept.append((done, seconds, parameters()))
                begin = time.perf_counter()
        mx.nd.waitall()
        seconds += time.perf_counter() - begin
        for update, clock, values in kept:
            path = os.path.join(spec["out"], f"update-{update:06d}.safetensors")
            save(path, values)
            say("snapshot", update=update, seconds=clock, path=path)
        say("update", update=done, seconds=seconds)
    elif command["do"] == "quit":
        say("done")
        break
