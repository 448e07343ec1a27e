"""Training throughput of PyTorch eager: pytorch.py THREADS, then turns.py's lines on standard input.

Tasks are softmax, mlp:100, mlp:128,32 and logistic; a batch is a number or "full". SGD at 0.1, float32, batches are views of one array in order.
"""
import sys
import time

import numpy as np
import torch
from torch import nn

import turns

torch.set_num_threads(int(sys.argv[1]))
arrays = {}


def data(rows, cols, classes, signed):
    if cols not in arrays:
        arrays.clear()
        rng = np.random.default_rng(42)
        x = turns.inputs(rng, rows, cols)
        if signed:
            x *= 2
            x -= 1
        arrays[cols] = torch.from_numpy(x), torch.from_numpy(rng.integers(0, classes, rows))
    return arrays[cols]


def make(task, batch, _):
    logistic = task == "logistic"
    rows, cols, out = (10_000, 10_000, 1) if logistic else (10_000, 784, 10)
    hidden = [int(h) for h in task[4:].split(",")] if task.startswith("mlp:") else []
    x, y = data(rows, cols, max(out, 2), logistic)
    layers, width = [], cols
    for h in hidden:
        layers += [nn.Linear(width, h), nn.ReLU()]
        width = h
    model = nn.Sequential(*layers, nn.Linear(width, out))
    loss = nn.BCEWithLogitsLoss() if logistic else nn.CrossEntropyLoss()
    if logistic:
        y = y.float().unsqueeze(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    size = rows if batch == "full" else int(batch)

    def epoch(until):
        done = 0
        for i in range(0, rows - size + 1, size):
            optimizer.zero_grad(set_to_none=True)
            loss(model(x[i:i + size]), y[i:i + size]).backward()
            optimizer.step()
            done += size
            if logistic and time.perf_counter() >= until:
                break
        return done

    return epoch


turns.serve(make)
