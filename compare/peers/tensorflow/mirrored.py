"""TensorFlow's MultiWorkerMirroredStrategy, a custom training loop: driven as compare/peers/README.md says.

Each worker keeps a copy of the variables; their gradients are summed by a ring over gRPC.
"""
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import driven  # noqa: E402

spec = driven.told("sync", full=True)
rank, workers, batch, rows, model = spec["rank"], spec["workers"], spec["batch"], spec["rows"], spec["model"]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": spec["addresses"]["worker"]}, "task": {"type": "worker", "index": rank}})
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

if not driven.untouched(spec):
    tf.config.threading.set_intra_op_parallelism_threads(spec["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(2)
options = tf.distribute.experimental.CommunicationOptions(implementation=tf.distribute.experimental.CommunicationImplementation.RING)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

init = driven.tensors(spec["init"])
binary = model["outputs"] == 1
names = driven.names(model)
x, y = map(tf.constant, driven.own(spec))
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


def run(begin, end):
    for update in range(begin, end):
        at, to = driven.rows(spec, update, len(y))
        step(tf.constant(at), tf.constant(to))
    variables[names[0][0]].numpy()  # the last update is complete


driven.serve(spec, {"tensorflow": tf.__version__}, run, lambda: {n: v.numpy() for n, v in variables.items()}, start)
driven.say("done")
os._exit(0)  # a worker that leaves first would keep the others waiting
