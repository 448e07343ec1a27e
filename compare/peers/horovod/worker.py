"""Horovod over gloo, on PyTorch: the worker of ../pytorch/worker.py, whose optimizer is Horovod's. `worker.py --detect` prints what is here."""
import ctypes
import importlib.util
import os
import socket
import sys
import threading
import time

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch", "worker.py")
loader = importlib.util.spec_from_file_location("pytorch_worker", path)
pytorch = importlib.util.module_from_spec(loader)
loader.loader.exec_module(pytorch)


def meet(spec):
    """What horovodrun does before it starts a rank: the place where all meet, and the rank's own in the environment."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.gloo_run import create_slot_env_vars
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer
    hosts = [a.rpartition(":")[0] for a in spec["addresses"]["worker"]]
    port = int(spec["addresses"]["worker"][0].rpartition(":")[2])
    plan = get_host_assignments(parse_hosts(",".join(f"{h}:{hosts.count(h)}" for h in dict.fromkeys(hosts))), len(hosts))
    if spec["rank"] == 0:
        server = RendezvousHTTPServer(("", port), RendezvousHandler, False)
        server.init(plan)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:  # the others wait until it listens
        try:
            socket.create_connection((hosts[0], port)).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    if spec["interface"] != "lo":  # 0.28.1 forgets its interface in a process set, and asks where this host's name is: that is the address here
        ctypes.CDLL(None, use_errno=True).unshare(0x04000000)  # CLONE_NEWUTS: of this process alone
        socket.sethostname(hosts[spec["rank"]])
    os.environ.update(create_slot_env_vars(plan[spec["rank"]]))
    os.environ.update({
        "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_GLOO_RENDEZVOUS_ADDR": hosts[0],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port), "HOROVOD_GLOO_IFACE": spec["interface"], "HOROVOD_GLOO_TIMEOUT_SECONDS": "60",
    })


class Worker(pytorch.Worker):
    def connect(self):
        meet(self.spec)
        if not pytorch.driven.untouched(self.spec):
            os.environ["HOROVOD_CYCLE_TIME"] = "0.1"  # milliseconds; see TUNING.md
        import horovod
        import horovod.torch as hvd
        hvd.init()
        self.hvd, self.model = hvd, self.net
        sgd = self.torch.optim.SGD(self.net.parameters(), lr=self.spec["rate"])
        self.optimizer = hvd.DistributedOptimizer(sgd, named_parameters=self.net.named_parameters())
        self.versions = {"torch": self.torch.__version__, "horovod": horovod.__version__}

    def leave(self):
        self.hvd.shutdown()


def detect():
    import horovod
    import horovod.torch as hvd
    import torch
    if not hvd.gloo_built():
        sys.exit("this Horovod was built without gloo")
    return {"torch": torch.__version__, "horovod": horovod.__version__}


if __name__ == "__main__":
    pytorch.main(Worker, detect)
