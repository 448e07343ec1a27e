"""Checks that models exported by trivium give the same predictions in ONNX Runtime, and that safetensors open in Python.

Run by hand, with the folder of the project's sample data if it is there:

    pip install onnxruntime safetensors numpy
    python compare/export_check.py path/to/trivium [path/to/data]

It trains each model for a moment, applies it with trivium, exports it, applies it with ONNX Runtime to the raw input (bytes of images,
columns of a table, sparse rows made dense), and prints the largest difference between the scores. It exits with 1 if one exceeds 1e-4 of
the largest score, or if a class differs where the scores do not say that it is a tie.
"""

import csv
import gzip
import io
import os
import random
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime
import safetensors.numpy

trivium = os.path.abspath(sys.argv[1])
samples = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else ""
os.chdir(tempfile.mkdtemp())
failures = []


def run(*args):
    p = subprocess.run([trivium, *args], capture_output=True, text=True)
    if p.returncode != 0:
        sys.exit(f"trivium {' '.join(args)}: exit {p.returncode}: {p.stderr}")
    return p.stdout


def images(n):
    """The test images as trivium numbers them, raw bytes."""
    folder = os.path.join(samples, "mnist10k")
    with gzip.open(os.path.join(folder, "t10k-images-idx3-ubyte.gz")) as f:
        _, rows, height, width = struct.unpack(">4I", f.read(16))
        x = np.frombuffer(f.read(), np.uint8).reshape(rows, height, width, 1)
    return {"x": x[8000 : 8000 + n].astype(np.float32)}


def sparse(path, columns, rows):
    """The given rows of a libsvm file, dense."""
    x = np.zeros((len(rows), columns), np.float32)
    with gzip.open(path, "rt") as f:
        lines = f.readlines()
    for i, r in enumerate(rows):
        for entry in lines[r].split()[1:]:
            column, value = entry.split(":")
            x[i, int(column) - 1] = float(value)
    return {"x": x}


def table(path):
    with open(path) as f:
        return list(csv.DictReader(f))


def compare(name, model, train, data, feed):
    run("train", model, *train, "--name", name, "--quiet")
    run("export", name, "--to", name + ".onnx")
    ours = list(csv.DictReader(io.StringIO(run("apply", name, "--raw", *data))))
    session = onnxruntime.InferenceSession(name + ".onnx")
    inputs = feed(ours)
    for i in session.get_inputs():
        if i.type == "tensor(int64)":
            inputs[i.name] = np.asarray(inputs[i.name], np.int64)
    n = len(next(iter(inputs.values())))
    theirs = session.run(None, inputs)
    columns = [c for c in ours[0] if c.startswith("score") or c.startswith("prediction")]
    want = np.array([[float(r[c]) for c in columns] for r in ours[:n]])
    got = np.asarray(theirs[0], np.float64).reshape(want.shape)
    scale = np.abs(want).max()
    worst = np.abs(want - got).max() / scale
    line = f"{name:16} {n:6} rows  largest difference {worst:.2e} of the largest score"
    if len(theirs) > 1:
        top = np.sort(want, axis=1)
        margin = top[:, -1] - top[:, -2] if want.shape[1] > 1 else np.abs(want[:, 0])
        chosen = want.argmax(axis=1) if want.shape[1] > 1 else (want[:, 0] > 0).astype(int)
        other = (np.asarray(theirs[1]).reshape(-1) != chosen) & (margin > 1e-4 * scale)
        line += f", {other.sum()} other classes"
        if other.any():
            failures.append(name)
    print(line)
    if not worst <= 1e-4:
        failures.append(name)
    run("export", name, "--to", name + ".safetensors")
    tensors = safetensors.numpy.load_file(name + ".safetensors")
    print(" " * 16, "safetensors:", ", ".join(f"{k} {list(v.shape)}" for k, v in sorted(tensors.items())))


def people(rows, cities, seed):
    r = random.Random(seed)
    with open(f"people{seed}.csv", "w") as f:
        f.write("age,city,height,visits,label\n")
        for _ in range(rows):
            age, city = r.randint(18, 80), r.choice(cities)
            height = "" if r.random() < 0.1 else f"{r.gauss(1.7, 0.1):.3f}"
            label = "yes" if (age > 45) != (city == "Rome") else "no"
            f.write(f"{age},{city},{height},{r.randint(0, 9)},{label}\n")
    return f"people{seed}.csv"


def columns(rows, categories, bucket=None):
    out = {}
    for c in rows[0]:
        if c == "city" and bucket:
            out[c] = [bucket(r[c]) for r in rows]
        elif c == "city":
            out[c] = [categories.index(r[c]) if r[c] in categories else len(categories) for r in rows]
        elif c != "label":
            out[c] = np.array([[float(r[c]) if r[c] else np.nan] for r in rows], np.float32)
    return out


def fnv(column, value, buckets):
    """data.Bucket in another language."""
    mask = (1 << 64) - 1
    h = 14695981039346656037
    for b in column.encode() + b"\0" + value.encode():
        h = (h ^ b) * 1099511628211 & mask
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & mask
    h = (h ^ h >> 27) * 0x94D049BB133111EB & mask
    return (h ^ h >> 31) % buckets


cities = ["Lima", "Oslo", "Rome"]
old, new = people(2000, cities, 1), people(300, cities + ["Bonn"], 2)
fit = ["--data", old, "--categorical", "city", "--missing", "mean", "--scale", "standard", "--epochs", "5"]
new_rows = table(new)
for model in ("logistic", "mlp:16", "svm"):
    name = "table-" + model.split(":")[0]
    compare(name, model, fit, ["--data", new], lambda _: columns(new_rows, cities))
compare("table-hashed", "logistic", fit + ["--hash", "64"], ["--data", new],
        lambda _: columns(new_rows, cities, lambda v: fnv("city", v, 64)))
compare("table-linear", "linear", ["--data", old, "--label", "age", "--categorical", "city,label", "--missing", "mean", "--epochs", "5"],
        ["--data", new],
        lambda _: {**{k: v for k, v in columns(new_rows, cities).items() if k != "age"}, "label": [["no", "yes"].index(r["label"]) for r in new_rows]})
if samples:
    mnist = ["--data", os.path.join(samples, "mnist10k"), "--epochs", "1"]
    for model in ("softmax", "mlp:100", "mlp:128,32", "cnn", "lstm:32"):
        compare("mnist-" + model.replace(":", "-").replace(",", "-"), model, mnist, [], lambda _: images(2000))
    a9a = os.path.join(samples, "a9a", "a9a.libsvm.gz")
    for model in ("logistic", "fm:8", "svm", "softmax"):
        compare("a9a-" + model.split(":")[0], model, ["--data", a9a, "--epochs", "1"], [],
                lambda ours: sparse(a9a, 123, [int(r["row"]) for r in ours]))
print("failed: " + ", ".join(sorted(set(failures))) if failures else "all the same")
sys.exit(1 if failures else 0)
