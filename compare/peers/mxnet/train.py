"""One run of MXNet's Module with a distributed key-value store, as its own examples train: python train.py < spec.json.

The spec is a JSON object:

    task      softmax, mlp:100 or mlp:128,32
    mode      dist_sync or dist_async; the optimizer is at the server, as MXNet has it
    workers   servers   threads (of each worker, default 1)
    batch     rows of each worker's step
    updates   steps of each worker that are timed; warmup: steps before them, which are not (default 20)
    rate      of SGD, default 0.1
    data      a folder with train-images-idx3-ubyte and train-labels-idx1-ubyte; without it random rows (rows, default 60,000)
    init      a .npz file with the initial parameters by name; without it they are drawn
    out       a folder for the parameters that result, as parameters.npz
    port      of the scheduler; without it one is chosen

Without DMLC_ROLE the program starts the scheduler, the servers and the workers, copies of itself, and prints one JSON event a line:
ready, updates with their loss, done with samples and seconds. Worker 0 saves the parameters after a barrier.
"""
import json
import os
import socket
import subprocess
import sys
import time

spec = json.loads(os.environ.get("TRIVIUM_PEER_SPEC") or sys.stdin.read())
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(spec.get("threads", 1))


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def launch():
    """Starts every role and passes on what workers say; done comes once, with the times of all of them."""
    port = spec.get("port")
    if not port:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
    env = dict(os.environ, TRIVIUM_PEER_SPEC=json.dumps(spec), DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(port),
               DMLC_NUM_WORKER=str(spec["workers"]), DMLC_NUM_SERVER=str(spec["servers"]))
    roles = ["scheduler"] + ["server"] * spec["servers"] + ["worker"] * spec["workers"]
    started = time.time()
    processes = [subprocess.Popen([sys.executable, __file__], env=dict(env, DMLC_ROLE=r), stdout=subprocess.PIPE, text=True)
                 for r in roles]
    try:
        done = []
        for p in processes[1 + spec["servers"]:]:
            for line in p.stdout:
                e = json.loads(line)
                if e["event"] == "done":
                    done.append(e)
                else:
                    print(line, end="", flush=True)
        for p in processes:
            if p.wait(timeout=60):
                sys.exit(f"a process of the run ended with status {p.returncode}")
        begin, end = min(e["begin"] for e in done), max(e["end"] for e in done)
        say("done", samples=sum(e["samples"] for e in done), seconds=end - begin, start_seconds=begin - started)
    finally:
        for p in processes:
            p.kill()


def network(mx):
    hidden = [int(h) for h in spec["task"][4:].split(",")] if spec["task"].startswith("mlp:") else []
    net = mx.sym.Variable("data")
    for i, h in enumerate(hidden):
        net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=h, name=f"fc{i}"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10, name="out"), name="softmax")


def examples(np):
    if folder := spec.get("data"):
        x = np.fromfile(os.path.join(folder, "train-images-idx3-ubyte"), np.uint8, offset=16).reshape(-1, 784)
        return x.astype(np.float32) / 255, np.fromfile(os.path.join(folder, "train-labels-idx1-ubyte"), np.uint8, offset=8).astype(np.float32)
    rng = np.random.default_rng(42)
    rows = spec.get("rows", 60_000)
    return rng.random((rows, 784), dtype=np.float32), rng.integers(0, 10, rows).astype(np.float32)


def work():
    import mxnet as mx
    import numpy as np

    kv = mx.kv.create(spec["mode"])
    batch, workers = spec["batch"], spec["workers"]
    x, y = examples(np)
    # Update t takes the next workers × batch rows; this worker its part of them. Batches are made before the clock starts.
    batches = [mx.io.DataBatch(data=[mx.nd.array(x[i:i + batch])], label=[mx.nd.array(y[i:i + batch])])
               for i in range(kv.rank * batch, len(x) - (len(x) % (batch * workers)), batch * workers)]
    module = mx.mod.Module(network(mx), context=mx.cpu())
    module.bind(data_shapes=[("data", (batch, 784))], label_shapes=[("softmax_label", (batch,))])
    given = {k: mx.nd.array(v) for k, v in np.load(spec["init"]).items()} if spec.get("init") else None
    module.init_params(mx.init.Xavier(), arg_params=given)
    together = workers if spec["mode"] == "dist_sync" else 1  # a synchronous step is of the sum over workers
    module.init_optimizer(kvstore=kv, optimizer="sgd",
                          optimizer_params={"learning_rate": spec.get("rate", 0.1), "rescale_grad": 1 / (batch * together)})

    def steps(n):
        for i in range(n):
            module.forward_backward(batches[i % len(batches)])
            module.update()
        mx.nd.waitall()

    steps(spec.get("warmup", 20))
    kv._barrier()
    if kv.rank == 0:
        say("ready")
    begin = time.time()
    steps(spec["updates"])
    end = time.time()
    say("done", samples=spec["updates"] * batch, begin=begin, end=end)
    kv._barrier()
    if kv.rank == 0 and spec.get("out"):
        params, _ = module.get_params()
        np.savez(os.path.join(spec["out"], "parameters.npz"), **{k: v.asnumpy() for k, v in params.items()})


if "DMLC_ROLE" not in os.environ:
    launch()
elif os.environ["DMLC_ROLE"] == "worker":
    work()
else:
    import mxnet  # noqa: F401  a server or the scheduler: importing runs it until the workers are done
