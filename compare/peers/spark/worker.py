"""Spark as a dataset program: the weights are broadcast, the gradients of a cached dataset are summed by treeAggregate, and the driver takes the
step. Driven as compare/peers/README.md says: the server is the driver, with the master of a standalone cluster; each worker is one of its
machines, with one executor. `worker.py --detect` prints what is here.
"""
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import driven  # noqa: E402

os.environ["SPARK_LOCAL_DIRS"] = os.getcwd()  # the harness removes it
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def detect():
    import pyspark
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    try:
        version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr.split("\n")[0]
    except OSError:
        sys.exit("Spark needs Java 17 or later, and there is no java on PATH: install a Java runtime, such as Debian's openjdk-17-jre-headless")
    driven.detected(pyspark=pyspark.__version__, java=version)


def with_us():
    """Whoever ends this process, however, ends Java too (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: a machine ends its executors then


def spark_class(*words, **options):
    import pyspark
    program = os.path.join(os.path.dirname(pyspark.__file__), "bin", "spark-class")
    return subprocess.Popen([program, *words], stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=with_us, **options)


# The master and the machines' daemons only start others: they need no second compiler. What runs in their Java is not what is measured.
DAEMONS = {"SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "SPARK_DAEMON_MEMORY": "512m"}


def machine(spec):
    """A worker of the standalone cluster: it starts the executor that it is told to."""
    host, port = spec["addresses"]["worker"][spec["rank"]].rsplit(":", 1)
    os.environ["SPARK_LOCAL_IP"] = host
    if not driven.untouched(spec):
        os.environ.update(DAEMONS)
    master, at = spec["addresses"]["server"][0].rsplit(":", 1)
    while True:  # the master first, as start-all.sh does: a machine that does not find it looks again after 5 to 15 s
        try:
            socket.create_connection((master, int(at))).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    daemon = spark_class("org.apache.spark.deploy.worker.Worker", "--host", host, "--port", port, "--webui-port", "0", "--cores", str(spec["threads"]),
                         "--memory", "4g", "--work-dir", spec["out"], "spark://" + spec["addresses"]["server"][0])
    driven.say("ready")
    sys.stdin.read()  # until its end
    daemon.terminate()


def session(spec):
    """The driver's, once all machines have an executor."""
    from pyspark.sql import SparkSession
    address = spec["addresses"]["server"][0]
    host, port = address.rsplit(":", 1)
    os.environ["SPARK_LOCAL_IP"] = host
    spark_class("org.apache.spark.deploy.master.Master", "--host", host, "--port", port, "--webui-port", "0", env={**os.environ, **({} if driven.untouched(spec) else DAEMONS)})
    builder = SparkSession.builder.master("spark://" + address).appName(spec["task"])
    settings = {
        "spark.driver.host": host, "spark.driver.bindAddress": host, "spark.driver.memory": "2g", "spark.executor.memory": "3g",
        "spark.executor.cores": spec["threads"], "spark.cores.max": spec["workers"] * spec["threads"], "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    if not driven.untouched(spec):  # see TUNING.md
        settings.update({
            "spark.locality.wait": "30s", "spark.broadcast.compress": "false", "spark.rdd.compress": "false",
            "spark.executorEnv.OMP_NUM_THREADS": spec["threads"], "spark.executorEnv.OPENBLAS_NUM_THREADS": spec["threads"],
        })
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    return builder.getOrCreate()


def gradient(weights, names, x, y):
    """The sum over the rows of x of the loss's gradient."""
    import numpy as np
    h = [x]
    for i, (w, b) in enumerate(names):
        z = h[-1] @ weights[w] + weights[b]
        h.append(np.maximum(z, 0) if i < len(names) - 1 else z)
    z = h.pop()
    if z.shape[1] == 1:
        d = 1 / (1 + np.exp(-z)) - y[:, None]
    else:
        d = np.exp(z - z.max(axis=1, keepdims=True))
        d /= d.sum(axis=1, keepdims=True)
        d[np.arange(len(y)), y] -= 1
    d = d.astype(np.float32)
    out = {}
    for (w, b), x in zip(reversed(names), reversed(h)):
        out[w], out[b] = x.T @ d, d.sum(axis=0)
        if x is not h[0]:
            d = (d @ weights[w].T) * (x > 0)
    return out


def add(a, b):
    return {n: a[n] + b[n] for n in b} if a else b


def driver(spec):
    import numpy as np
    spark = session(spec)
    sc = spark.sparkContext
    sc.setLogLevel("ERROR")
    model, rows, workers, batch = spec["model"], spec["rows"], spec["workers"], spec["batch"]
    names = driven.names(model)
    if spec["full"]:
        shares = [[(r * rows // workers, (r + 1) * rows // workers) for r in range(workers)]]
    else:
        shares = [[((t * workers + r) * batch, (t * workers + r + 1) * batch) for r in range(workers)] for t in range(rows // (workers * batch))]
    train_x, train_y = spec["train_x"], spec["train_y"]

    def block(share):
        x, y = np.load(train_x, mmap_mode="r"), np.load(train_y, mmap_mode="r")
        return np.array(x[slice(*share)]), np.array(y[slice(*share)])

    # A dataset for each update of an epoch, a partition for each worker; all in the executors' memory before the clock starts.
    data = [sc.parallelize(s, workers).map(block).cache() for s in shares]
    sc.union(data)._jrdd.count()  # by Java: count() of Python would have each block read by Python once more
    effective = rows if spec["full"] else workers * batch
    init = driven.tensors(spec["init"])
    weights = dict(init)

    def run(begin, end):
        for t in range(begin, end):
            w = sc.broadcast(weights)
            g = data[t % len(data)].treeAggregate({}, lambda sum, xy: add(sum, gradient(w.value, names, *xy)), add)
            w.destroy()
            for n in weights:
                weights[n] = weights[n] - np.float32(spec["rate"] / effective) * g[n]

    driven.serve(spec, {"spark": sc.version}, run, lambda: dict(weights), lambda: weights.update(init))


def main(driver):
    if sys.argv[1:] == ["--detect"]:
        return detect()
    spec = driven.told("sync", full=True)
    if spec["role"] == "worker":
        machine(spec)
    else:
        driver(spec)
        driven.say("done")
    sys.stdout.flush()
    os._exit(0)  # the harness ends what a cluster leaves behind


if __name__ == "__main__":
    main(driver)
