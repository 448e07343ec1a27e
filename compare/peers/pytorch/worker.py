"""PyTorch's DistributedDataParallel over gloo, as its tutorials train: one process a worker, driven as compare/peers/README.md says.

`worker.py --detect` prints what is here.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import driven  # noqa: E402


def network(model):
    """Convolutions of 5 × 5 with ReLU and 2 × 2 max-pooling where there are images, then dense layers with ReLU between them; and of each layer
    that has weights the height and width of what an output of it sees: the first dense layer all of the last image."""
    from torch import nn
    layers, windows = [], []
    height, width, depth = model.get("image", (1, 1, model["inputs"]))
    for filters in model.get("convolutions", ()):
        layers += [nn.Conv2d(depth, filters, 5), nn.ReLU(), nn.MaxPool2d(2)]
        windows.append((5, 5))
        height, width, depth = (height - 4) // 2, (width - 4) // 2, filters
    if layers:
        layers.append(nn.Flatten())
    for units in model["hidden"] + [model["outputs"]]:
        layers += [nn.Linear(height * width * depth, units), nn.ReLU()]
        windows.append((height, width))
        height, width, depth = 1, 1, units
    return nn.Sequential(*layers[:-1]), windows


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
        model = spec["model"]
        if "image" in model:  # its channels first
            self.x = self.x.reshape(-1, *model["image"]).permute(0, 3, 1, 2).contiguous()
        binary = model["outputs"] == 1
        self.y = y.float().unsqueeze(1) if binary else y.long()
        self.net, self.windows = network(model)
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
        """Each layer that has weights, its window, and the names of its parameters."""
        return zip([layer for layer in self.net if hasattr(layer, "weight")], self.windows, driven.names(self.spec["model"]))

    def reset(self):
        init = driven.tensors(self.spec["init"])
        self.shapes = {name: t.shape for name, t in init.items()}
        with self.torch.no_grad():
            for layer, window, (w, b) in self.layers():
                weight = self.torch.from_numpy(init[w]).reshape(*window, -1, len(layer.bias))
                layer.weight.copy_(weight.permute(3, 2, 0, 1).reshape(layer.weight.shape))  # kept as out x in x height x width
                layer.bias.copy_(self.torch.from_numpy(init[b]))

    def parameters(self):
        out = {}
        for layer, window, (w, b) in self.layers():
            weight = layer.weight.detach().reshape(len(layer.bias), -1, *window).permute(2, 3, 1, 0)
            out[w], out[b] = weight.reshape(self.shapes[w]).numpy().copy(), layer.bias.detach().numpy().copy()
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
