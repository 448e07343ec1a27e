"""PyTorch's DistributedDataParallel over gloo, as its tutorials train: one process a worker, driven as compare/peers/README.md says.

`worker.py --detect` prints what is here; `worker.py --standalone SPEC.json UPDATES` runs all workers of a Spec without the harness, and
prints the samples per second of all together.
"""
import json
import os
import socket
import subprocess
import sys
import time

import numpy as np


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def load_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], np.float32).reshape(t["shape"])
            for name, t in header.items() if name != "__metadata__"}


def save_safetensors(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    with open(path + ".part", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            f.write(np.ascontiguousarray(t).tobytes())
    os.rename(path + ".part", path)


class Worker:
    """One rank: data, model, and the clock of its updates."""

    def __init__(self, spec):
        import torch
        from torch import nn
        self.torch, self.spec = torch, spec
        self.untouched = spec.get("extra", {}).get("untouched", False)
        if not self.untouched:
            torch.set_num_threads(spec["threads"])
            torch.set_num_interop_threads(1)
        self.x = torch.from_numpy(np.load(spec["train_x"]))
        y = torch.from_numpy(np.load(spec["train_y"]))
        m = spec["model"]
        binary = m["outputs"] == 1
        self.y = y.float().unsqueeze(1) if binary else y.long()
        layers, width = [], m["inputs"]
        for h in m["hidden"]:
            layers += [nn.Linear(width, h), nn.ReLU()]
            width = h
        self.net = nn.Sequential(*layers, nn.Linear(width, m["outputs"]))
        self.loss = nn.BCEWithLogitsLoss() if binary else nn.CrossEntropyLoss()
        self.connect()
        self.reset()

    def connect(self):
        import torch.distributed as dist
        host, _, port = self.spec["addresses"]["worker"][0].rpartition(":")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", self.spec.get("interface", "lo"))
        dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}", rank=self.spec["rank"], world_size=self.spec["workers"])
        self.model = self.torch.nn.parallel.DistributedDataParallel(self.net)
        self.optimizer = self.torch.optim.SGD(self.model.parameters(), lr=self.spec["rate"])
        self.versions = {"torch": self.torch.__version__}

    def leave(self):
        import torch.distributed as dist
        dist.destroy_process_group()

    def layers(self):
        return [layer for layer in self.net if hasattr(layer, "weight")]

    def names(self):
        layers = self.layers()
        return [("w", "b")] if self.spec["model"]["outputs"] == 1 else [(f"w{i + 1}", f"b{i + 1}") for i in range(len(layers))]

    def reset(self):
        init = load_safetensors(self.spec["init"])
        with self.torch.no_grad():
            for layer, (w, b) in zip(self.layers(), self.names()):
                layer.weight.copy_(self.torch.tensor(init[w]).T)  # kept as out x in
                layer.bias.copy_(self.torch.tensor(init[b]))
        self.t = self.done = 0
        self.seconds = 0.0

    def parameters(self):
        out = {}
        for layer, (w, b) in zip(self.layers(), self.names()):
            out[w], out[b] = layer.weight.detach().T.contiguous().numpy().copy(), layer.bias.detach().numpy().copy()
        return out

    def rows(self):
        """The rows of this worker's part of the next update, and by what its mean is to be multiplied."""
        s = self.spec
        if s["full"]:
            begin, end = s["rank"] * s["rows"] // s["workers"], (s["rank"] + 1) * s["rows"] // s["workers"]
            return begin, end, (end - begin) * s["workers"] / s["rows"]
        if self.t == s["rows"] // (s["workers"] * s["batch"]):
            self.t = 0
        begin = (self.t * s["workers"] + s["rank"]) * s["batch"]
        self.t += 1
        return begin, begin + s["batch"], 1

    def step(self):
        begin, end, factor = self.rows()
        self.optimizer.zero_grad()
        loss = self.loss(self.model(self.x[begin:end]), self.y[begin:end])
        (loss if factor == 1 else loss * factor).backward()
        self.optimizer.step()
        self.done += 1

    def run(self, updates, snapshots=()):
        kept, begin = [], time.perf_counter()
        for _ in range(updates):
            self.step()
            if self.spec["rank"] == 0 and self.done in snapshots:
                self.seconds += time.perf_counter() - begin
                kept.append((self.done, self.seconds, self.parameters()))
                begin = time.perf_counter()
        self.seconds += time.perf_counter() - begin
        for update, seconds, tensors in kept:
            path = os.path.join(self.spec["out"], f"update-{update:06d}.safetensors")
            save_safetensors(path, tensors)
            say("snapshot", update=update, seconds=seconds, path=path)
        say("update", update=self.done, seconds=self.seconds)


def serve(worker_of):
    spec = json.loads(sys.stdin.readline())
    if spec["version"] != 1 or spec["mode"] != "sync" or spec["role"] != "worker":
        sys.exit(f"this program does version 1, mode sync, role worker; not {spec['version']}, {spec['mode']}, {spec['role']}")
    if not spec.get("extra", {}).get("untouched"):
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(spec["threads"])
    worker = worker_of(spec)
    say("ready", versions=worker.versions, threads=spec["threads"])
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "run":
            worker.run(command["updates"], set(command.get("snapshots", ())))
        elif command["do"] == "reset":
            worker.reset()
            say("ready")
        elif command["do"] == "quit":
            worker.leave()
            say("done")
            return


def standalone(program, path, updates):
    """Runs all workers of a Spec, and prints samples per second: an example of a harness too."""
    with open(path) as f:
        spec = json.load(f)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    spec["addresses"] = {"worker": [address] * spec["workers"]}
    all_of_them = [subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                   for _ in range(spec["workers"])]

    def tell(lines):
        for p, line in zip(all_of_them, lines):
            p.stdin.write(json.dumps(line) + "\n")
            p.stdin.flush()
        return [json.loads(p.stdout.readline()) for p in all_of_them]

    n = spec["workers"]
    tell([{**spec, "rank": r} for r in range(n)])
    tell([{"do": "run", "updates": max(20, updates // 10), "snapshots": []}] * n)
    tell([{"do": "reset"}] * n)
    answers = tell([{"do": "run", "updates": updates, "snapshots": []}] * n)
    tell([{"do": "quit"}] * n)
    rows = spec["rows"] if spec["full"] else spec["batch"] * n
    print(round(updates * rows / max(a["seconds"] for a in answers)))


def main(program, worker_of, detect):
    if sys.argv[1:] == ["--detect"]:
        print(json.dumps({"python": sys.version.split()[0], **detect()}))
    elif sys.argv[1:2] == ["--standalone"]:
        standalone(program, sys.argv[2], int(sys.argv[3]))
    else:
        serve(worker_of)


def detect():
    import torch
    if not torch.distributed.is_gloo_available():
        sys.exit("this torch has no gloo")
    return {"torch": torch.__version__}


if __name__ == "__main__":
    main(__file__, Worker, detect)
