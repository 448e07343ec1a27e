"""Recomputes losses from saved parameters with NumPy alone: check.py < LIST.

Each line on standard input is a JSON object: {"path": a safetensors file, "x": the training rows as .npy, "y": their labels as .npy}.
For each it prints one line: {"path": ..., "loss": the mean loss over all rows}. Tensors w and b are logistic regression; w1, b1, w2,
b2, ... are dense layers with ReLU between them, under softmax cross-entropy.
"""
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


def loss(p, x, y):
    if "w" in p:
        z = (x @ p["w"] + p["b"]).ravel()
        return np.logaddexp(0, np.where(y == 1, -z, z))
    layers = len(p) // 2
    for i in range(1, layers + 1):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        if i < layers:
            x = np.maximum(x, 0)
    top = x.max(axis=1)
    return top + np.log(np.exp(x - top[:, None]).sum(axis=1)) - x[np.arange(len(y)), y]


for line in sys.stdin:
    job = json.loads(line)
    p, x, y = tensors(job["path"]), np.load(job["x"], mmap_mode="r"), np.load(job["y"])
    total = 0.0
    for at in range(0, len(y), 1000):  # in pieces, as float64: 10,000 columns are 80 kB a row
        total += loss(p, x[at:at + 1000].astype(np.float64), y[at:at + 1000]).sum()
    print(json.dumps({"path": job["path"], "loss": total / len(y)}), flush=True)
