"""Allreduce of PyTorch's c10d with Gloo: c10d.py RANK SIZE FILE. Each line of its input is BYTES COUNT; rank 0 answers with the median in
seconds. FILE is where the ranks meet."""
import statistics
import sys
import time

import torch
import torch.distributed as dist

rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
for line in sys.stdin:
    n, count = (int(x) for x in line.split())
    x = torch.zeros(n // 4)
    for _ in range(2):
        dist.all_reduce(x)
    dist.barrier()
    took = []
    for _ in range(count):
        at = time.perf_counter()
        dist.all_reduce(x)
        took.append(time.perf_counter() - at)
    if rank == 0:
        print(statistics.median(took), flush=True)
dist.destroy_process_group()
