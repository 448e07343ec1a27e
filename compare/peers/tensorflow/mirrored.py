"""TensorFlow's MultiWorkerMirroredStrategy, a custom training loop: driven as compare/peers/README.md says.

Each worker keeps a copy of the variables; their gradients are summed by a ring over gRPC. `mirrored.py --detect` prints what is here.
"""
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


if sys.argv[1:] == ["--detect"]:
    import tensorflow
    print(json.dumps({"python": sys.version.split()[0], "tensorflow": tensorflow.__version__}))
    sys.exit()

spec = json.loads(sys.stdin.readline())
if spec["version"] != 1 or spec["mode"] != "sync":
    sys.exit("this program does version 1, mode sync")
rank, workers, batch, rows, model = spec["rank"], spec["workers"], spec["batch"], spec["rows"], spec["model"]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": spec["addresses"]["worker"]}, "task": {"type": "worker", "index": rank}})
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

if not spec.get("extra", {}).get("untouched"):
    tf.config.threading.set_intra_op_parallelism_threads(spec["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(2)
options = tf.distribute.experimental.CommunicationOptions(implementation=tf.distribute.experimental.CommunicationImplementation.RING)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


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


init = tensors(spec["init"])
binary = model["outputs"] == 1
names = [("w", "b")] if binary else [(f"w{i}", f"b{i}") for i in range(1, len(model["hidden"]) + 2)]
x, y = tf.constant(np.load(spec["train_x"])), tf.constant(np.load(spec["train_y"]))
with strategy.scope():
    variables = {n: tf.Variable(init[n], name=n) for pair in names for n in pair}
    optimizer = tf.keras.optimizers.SGD(spec["rate"])
    optimizer.build(list(variables.values()))
effective = rows if spec["full"] else workers * batch


@tf.function
def step(begin, end):
    def replica(begin, end):
        rows_x, labels = x[begin:end], y[begin:end]
        with tf.GradientTape() as tape:
            h = rows_x
            for i, (w, b) in enumerate(names):
                h = tf.matmul(h, variables[w]) + variables[b]
                if i < len(names) - 1:
                    h = tf.nn.relu(h)
            if binary:
                losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(labels, tf.float32)[:, None], logits=h)
            else:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=h)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=effective)
        gradients = tape.gradient(loss, list(variables.values()))
        optimizer.apply_gradients(zip(gradients, variables.values()))  # sums them over all replicas first

    strategy.run(replica, (begin, end))


def start():
    for n, v in variables.items():
        v.assign(init[n])


say("ready", versions={"tensorflow": tf.__version__}, threads=spec["threads"])
t = done = 0
seconds = 0.0
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "reset":
        start()
        t = done = 0
        seconds = 0.0
        say("ready")
    elif command["do"] == "run":
        snapshots, kept = set(command.get("snapshots") or ()), []
        begin = time.perf_counter()
        for _ in range(command["updates"]):
            if spec["full"]:
                at, to = rank * rows // workers, (rank + 1) * rows // workers
            else:
                if t == rows // effective:
                    t = 0
                at = (t * workers + rank) * batch
                to = at + batch
            step(tf.constant(at), tf.constant(to))
            t, done = t + 1, done + 1
            if rank == 0 and done in snapshots:
                seconds += time.perf_counter() - begin
                kept.append((done, seconds, {n: v.numpy() for n, v in variables.items()}))
                begin = time.perf_counter()
        variables[names[0][0]].numpy()  # the last update is complete
        seconds += time.perf_counter() - begin
        for update, clock, values in kept:
            path = os.path.join(spec["out"], f"update-{update:06d}.safetensors")
            save(path, values)
            say("snapshot", update=update, seconds=clock, path=path)
        say("update", update=done, seconds=seconds)
    elif command["do"] == "quit":
        say("done")
        os._exit(0)  # a worker that leaves first would keep the others waiting
