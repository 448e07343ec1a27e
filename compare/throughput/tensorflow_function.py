"""Training throughput of TensorFlow's tf.function: tensorflow_function.py THREADS, then turns.py's lines on standard input; "xla" at their end
compiles the step with it.

Tasks are softmax, mlp:100, mlp:128,32 and logistic; a batch is a number or "full". SGD at 0.1, float32, batches are made before the clock starts.
"""
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

import turns

tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
tf.config.threading.set_inter_op_parallelism_threads(1)
arrays = {}


def data(rows, cols, classes, logistic, size):
    """The batches of that size."""
    if (cols, size) not in arrays:
        rng = np.random.default_rng(42)
        x = turns.inputs(rng, rows, cols)
        if logistic:
            x *= 2
            x -= 1
        y = rng.integers(0, classes, rows).astype(np.float32 if logistic else np.int32)
        arrays[cols, size] = [(tf.constant(x[i:i + size]), tf.constant(y[i:i + size])) for i in range(0, rows - size + 1, size)]
    return arrays[cols, size]


def make(task, batch, more):
    logistic = task == "logistic"
    rows, cols, out = (10_000, 10_000, 1) if logistic else (10_000, 784, 10)
    hidden = [int(h) for h in task[4:].split(",")] if task.startswith("mlp:") else []
    size = rows if batch == "full" else int(batch)
    widths = [cols, *hidden, out]
    params = [tf.Variable(p) for a, b in zip(widths, widths[1:])
              for p in (tf.random.normal((a, b)) * (2 / a) ** 0.5, tf.zeros(b))]

    @tf.function(jit_compile="xla" in more)
    def step(xb, yb):
        with tf.GradientTape() as tape:
            h = xb
            for i in range(0, len(params), 2):
                h = h @ params[i] + params[i + 1]
                if i + 2 < len(params):
                    h = tf.nn.relu(h)
            if logistic:
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=yb, logits=h[:, 0]))
            else:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=yb, logits=h))
        for p, g in zip(params, tape.gradient(loss, params)):
            p.assign_sub(0.1 * g)
        return loss

    def epoch(until):
        done = 0
        for xb, yb in data(rows, cols, max(out, 2), logistic, size):
            loss = step(xb, yb)
            done += size
            if time.perf_counter() >= until:
                break
        loss.numpy()
        return done

    epoch(0)  # the batches and the compiler's time are before the clock
    return epoch


turns.serve(make)
