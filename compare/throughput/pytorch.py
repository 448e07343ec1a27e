"""Training throughput of PyTorch eager: pytorch.py TASK BATCH THREADS SECONDS. Prints samples/s.

TASK is softmax, mlp:100, mlp:128,32 or logistic; BATCH a number or "full". SGD at 0.1, float32, batches are views of one array in order.
"""
import sys
import time

import numpy as np
import torch
from torch import nn

task, batch, threads, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
torch.set_num_threads(threads)
rng = np.random.default_rng(42)
if task == "logistic":
    rows, cols, hidden, out = 10_000, 10_000, [], 1
else:
    rows, cols, out = 10_000, 784, 10
    hidden = [int(h) for h in task[4:].split(",")] if task.startswith("mlp:") else []
x = torch.from_numpy(rng.random((rows, cols), dtype=np.float32) * (2 if task == "logistic" else 1) - (1 if task == "logistic" else 0))
y = torch.from_numpy(rng.integers(0, max(out, 2), rows))
layers, width = [], cols
for h in hidden:
    layers += [nn.Linear(width, h), nn.ReLU()]
    width = h
model = nn.Sequential(*layers, nn.Linear(width, out))
loss = nn.BCEWithLogitsLoss() if task == "logistic" else nn.CrossEntropyLoss()
if task == "logistic":
    y = y.float().unsqueeze(1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
size = rows if batch == "full" else int(batch)


def step(i):
    optimizer.zero_grad(set_to_none=True)
    loss(model(x[i:i + size]), y[i:i + size]).backward()
    optimizer.step()


def run(until):
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < until:
        for i in range(0, rows - size + 1, size):
            step(i)
            done += size
            if task == "logistic" and time.perf_counter() - start >= until:
                break
    return done / (time.perf_counter() - start)


run(seconds / 2)
print(run(seconds))
