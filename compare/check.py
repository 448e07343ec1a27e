"""Recomputes losses from saved parameters with NumPy alone: check.py < LIST.

Each line on standard input is a JSON object: {"path": a safetensors file, "x": the training rows as .npy, "y": their labels as .npy}.
For each it prints one line: {"path": ..., "loss": the mean loss over all rows}. Tensors w and b are logistic regression; w1, b1, w2,
b2, ... are dense layers with ReLU between them, under softmax cross-entropy; before them conv1, conv1b, conv2, ... are convolutions of
square images, each with ReLU and 2 by 2 max-pooling. Lines of the same rows are answered together, since to read them takes longer.
"""
import itertools
import json
import struct
import sys

import numpy as np

DTYPES = {"F32": np.float32}


def tensors(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        body = f.read()
    head.pop("__metadata__", None)
    return {n: np.frombuffer(body[slice(*t["data_offsets"])], DTYPES[t["dtype"]]).reshape(t["shape"]).astype("f8") for n, t in head.items()}


def losses(models, x, y):
    if "w" in models[0]:
        z = x @ np.hstack([p["w"].reshape(-1, 1) for p in models]) + np.hstack([p["b"].ravel() for p in models])
        return np.logaddexp(0, np.where(y[:, None] == 1, -z, z)).sum(axis=0)
    return np.array([softmax(p, x, y).sum() for p in models])


def convolved(x, w, b):
    side = round((x[0].size / w.shape[2]) ** 0.5)
    patches = np.lib.stride_tricks.sliding_window_view(x.reshape(-1, side, side, w.shape[2]), w.shape[:2], (1, 2))
    z = np.maximum(np.tensordot(patches, w, ((4, 5, 3), (0, 1, 2))) + b, 0)
    return z.reshape(len(z), z.shape[1] // 2, 2, z.shape[2] // 2, 2, -1).max(axis=(2, 4))


def softmax(p, x, y):
    convolutions = sum(name.startswith("conv") for name in p) // 2
    for i in range(1, convolutions + 1):
        x = convolved(x, p[f"conv{i}"], p[f"conv{i}b"])
    x, layers = x.reshape(len(x), -1), len(p) // 2 - convolutions
    for i in range(1, layers + 1):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        if i < layers:
            x = np.maximum(x, 0)
    top = x.max(axis=1)
    return top + np.log(np.exp(x - top[:, None]).sum(axis=1)) - x[np.arange(len(y)), y]


for rows, jobs in itertools.groupby(map(json.loads, sys.stdin), lambda job: (job["x"], job["y"])):
    x, y = np.load(rows[0], mmap_mode="r"), np.load(rows[1])
    while some := list(itertools.islice(jobs, 64)):
        models, total = [tensors(job["path"]) for job in some], 0
        for at in range(0, len(y), 100):  # in pieces, as float64: 10,000 columns are 80 kB a row, an image's patches 256
            total += losses(models, x[at:at + 100].astype(np.float64), y[at:at + 100])
        for job, loss in zip(some, total / len(y)):
            print(json.dumps({"path": job["path"], "loss": loss}), flush=True)
