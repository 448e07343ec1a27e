"""Training throughput of TensorFlow's tf.function: tensorflow_function.py TASK BATCH THREADS SECONDS [xla]. Prints samples/s.

TASK is softmax, mlp:100, mlp:128,32 or logistic; BATCH a number or "full". SGD at 0.1, float32, batches are slices taken in the graph.
"""
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

task, batch, threads, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
xla = len(sys.argv) > 5 and sys.argv[5] == "xla"
tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.threading.set_inter_op_parallelism_threads(1)
rng = np.random.default_rng(42)
if task == "logistic":
    rows, cols, hidden, out = 10_000, 10_000, [], 1
else:
    rows, cols, out = 10_000, 784, 10
    hidden = [int(h) for h in task[4:].split(",")] if task.startswith("mlp:") else []
low, high = (-1, 1) if task == "logistic" else (0, 1)
x = tf.constant(rng.random((rows, cols), dtype=np.float32) * (high - low) + low)
y = tf.constant(rng.integers(0, max(out, 2), rows).astype(np.int32))
if task == "logistic":
    y = tf.cast(y, tf.float32)
size = rows if batch == "full" else int(batch)
widths = [cols, *hidden, out]
params = [tf.Variable(p) for a, b in zip(widths, widths[1:])
          for p in (tf.random.normal((a, b)) * (2 / a) ** 0.5, tf.zeros(b))]


@tf.function(jit_compile=xla)
def step(xb, yb):
    with tf.GradientTape() as tape:
        h = xb
        for i in range(0, len(params), 2):
            h = h @ params[i] + params[i + 1]
            if i + 2 < len(params):
                h = tf.nn.relu(h)
        if task == "logistic":
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=yb, logits=h[:, 0]))
        else:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=yb, logits=h))
    for p, g in zip(params, tape.gradient(loss, params)):
        p.assign_sub(0.1 * g)
    return loss


batches = [(x[i:i + size], y[i:i + size]) for i in range(0, rows - size + 1, size)]


def run(until):
    done, start = 0, time.perf_counter()
    while True:
        for xb, yb in batches:
            loss = step(xb, yb)
            done += size
            if time.perf_counter() - start >= until:
                loss.numpy()
                return done / (time.perf_counter() - start)


run(seconds / 2)
print(run(seconds))
