"""PyTorch's DistributedDataParallel over gloo, as its tutorials train: one process a worker, driven as compare/peers/README.md says.

`worker.py --detect` prints what is here.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import driven  # noqa: E402


class Worker:
    """One rank: its data and its model."""

    def __init__(self, spec):
        import torch
        from torch import nn
        self.torch, self.spec = torch, spec
        if not driven.untouched(spec):
            torch.set_num_threads(spec["threads"])
            torch.set_num_interop_threads(1)
        self.x, y = map(torch.from_numpy, driven.own(spec))
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

    def reset(self):
        init = driven.tensors(self.spec["init"])
        with self.torch.no_grad():
            for layer, (w, b) in zip(self.layers(), driven.names(self.spec["model"])):
                layer.weight.copy_(self.torch.from_numpy(init[w]).T)  # kept as out x in
                layer.bias.copy_(self.torch.from_numpy(init[b]))

    def parameters(self):
        out = {}
        for layer, (w, b) in zip(self.layers(), driven.names(self.spec["model"])):
            out[w], out[b] = layer.weight.detach().T.contiguous().numpy().copy(), layer.bias.detach().numpy().copy()
        return out

    def run(self, begin, end):
        spec, uneven = self.spec, 1
        for update in range(begin, end):
            at, to = driven.rows(spec, update, len(self.y))
            if spec["full"]:  # shares may differ by a row, and the mean is over all rows
                uneven = (to - at) * spec["workers"] / spec["rows"]
            self.optimizer.zero_grad()
            loss = self.loss(self.model(self.x[at:to]), self.y[at:to])
            (loss if uneven == 1 else loss * uneven).backward()
            self.optimizer.step()


def main(worker_of, detect):
    if sys.argv[1:] == ["--detect"]:
        return driven.detected(**detect())
    spec = driven.told("sync", full=True)
    if not driven.untouched(spec):
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(spec["threads"])
    worker = worker_of(spec)
    driven.serve(spec, worker.versions, worker.run, worker.parameters, worker.reset)
    worker.leave()
    driven.say("done")


def detect():
    import torch
    if not torch.distributed.is_gloo_available():
        sys.exit("this torch has no gloo")
    return {"torch": torch.__version__}


if __name__ == "__main__":
    main(Worker, detect)
