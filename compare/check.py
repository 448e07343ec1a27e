"""Recomputes losses from saved parameters with NumPy alone: check.py < LIST.

Each line on standard input is a JSON object: {"path": a safetensors file, "x": the training rows as .npy, "y": their labels as .npy}.
For each it prints one line: {"path": ..., "loss": the mean loss over all rows}. Tensors w and b are logistic regression; w1, b1, w2,
b2, ... are dense layers with ReLU between them, under softmax cross-entropy. Lines of the same rows are answered together, since to
read the rows takes longer than to compute a loss.
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
    out = {}
    for name, t in head.items():
        begin, end = t["data_offsets"]
        out[name] = np.frombuffer(body[begin:end], DTYPES[t["dtype"]]).reshape(t["shape"]).astype(np.float64)
    return out


def losses(models, x, y):
    if "w" in models[0]:
        z = x @ np.hstack([p["w"].reshape(-1, 1) for p in models]) + np.hstack([p["b"].ravel() for p in models])
        return np.logaddexp(0, np.where(y[:, None] == 1, -z, z)).sum(axis=0)
    return np.array([softmax(p, x, y).sum() for p in models])


def softmax(p, x, y):
    layers = len(p) // 2
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
        for at in range(0, len(y), 1000):  # in pieces, as float64: 10,000 columns are 80 kB a row
            total += losses(models, x[at:at + 1000].astype(np.float64), y[at:at + 1000])
        for job, loss in zip(some, total / len(y)):
            print(json.dumps({"path": job["path"], "loss": loss}), flush=True)
