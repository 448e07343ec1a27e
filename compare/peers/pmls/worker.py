"""PMLS: the logistic regression of Bösen, per-sample SGD with so many clocks an epoch. Driven as compare/peers/README.md says.

The program is Bösen's own mlr_main, built by build.sh. Its loop over epochs is one over clocks that it is told to make (clocks.patch); the
mended one adds a sample as its dense vectors do, where the shipped one calls a virtual function for each element (mended.patch).
Two classes have no bias there: a column of ones stands for it. `worker.py ENV --detect` prints what is here.
"""
import json
import os
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import driven  # noqa: E402

RATE = 0.001  # of a step of one row: that of the other rows, 0.1, over a batch of 100

env = sys.argv[1]
if sys.argv[2:] == ["--detect"]:
    for name in ("mlr_main", "mlr_main_mended"):
        if subprocess.run([os.path.join(env, "bin", name), "--version"], capture_output=True).returncode != 0:
            sys.exit(f"{name} does not start: build it again")
    driven.detected(pmls="1.1")
    sys.exit()

spec = driven.told("ssp")
if spec["model"]["outputs"] != 1:
    sys.exit("this program does logistic regression")
rank, workers, rows, clocks, out = spec["rank"], spec["workers"], spec["rows"], spec["clocks"], spec["out"]
x, y = np.load(spec["train_x"], mmap_mode="r"), np.load(spec["train_y"])
columns = x.shape[1] + 1
first, last = rank * rows // workers, (rank + 1) * rows // workers
train = os.path.join(out, "train")
with open(f"{train}.{rank}", "wb") as f:  # its binary format: a label, then the features
    for i in range(first, last):
        f.write(np.int32(y[i]).tobytes() + np.append(x[i], np.float32(1)).tobytes())
with open(f"{train}.{rank}.meta", "w") as f:
    f.write(f"num_train_total: {rows}\nnum_train_this_partition: {last - first}\nfeature_dim: {columns}\n"
            f"num_labels: 2\nformat: bin\nfeature_one_based: 0\nlabel_one_based: 0\nsnappy_compressed: 0\n")
with open(os.path.join(out, "hosts"), "w") as f:
    for i, address in enumerate(spec["addresses"]["worker"]):
        f.write(f"{i} {address.replace(':', ' ')}\n")
del x  # its pages are not to be counted

process = subprocess.Popen([
    os.path.join(env, "bin", spec["extra"]["program"]), f"--hostfile={out}/hosts", f"--client_id={rank}", f"--num_clients={workers}",
    "--num_app_threads=1", f"--train_file={train}", "--global_data=false", "--consistency_model=SSP", f"--staleness={spec['staleness']}",
    f"--num_batches_per_epoch={clocks}", f"--init_lr={RATE}", f"--w_table_num_cols={columns}", f"--output_file_prefix={out}/w-",
    f"--log_dir={out}", f"--minloglevel={0 if spec['extra'].get('untouched') else 1}",
], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def tell(line):
    process.stdin.write(line + "\n")
    process.stdin.flush()


def answers(word):
    """What it prints up to a line that begins with that word; the name node of client 0 greets first."""
    for line in process.stdout:
        yield line.split()
        if line.split()[:1] == [word]:
            return
    sys.exit(f"mlr_main ends with {process.wait()}")


def saved(update):
    """Where the weights of a snapshot are, as safetensors."""
    raw = os.path.join(out, f"w-{update}")
    w = np.fromfile(raw, np.float32)
    os.remove(raw)
    return driven.save(spec, update, {"w": w[:-1, None], "b": w[-1:]})


kept = []  # update and clock of the weights that the program has put into files, as raw numbers
list(answers("ready"))  # it has read its rows and met the others; its weights are zeros, as those of these models are
os.remove(f"{train}.{rank}")
driven.say("ready", versions={"pmls": "1.1"}, threads=1)
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "reset":
        kept = []
        tell("reset")
        list(answers("ready"))
        driven.say("ready")
    elif command["do"] == "run":
        keep = command.get("snapshots") or [] if rank == 0 else []
        tell(" ".join(map(str, [command["updates"], *keep])))
        for word, update, seconds in answers("update"):
            if word == "snapshot":
                kept.append((int(update), float(seconds)))
            else:
                driven.say(word, update=int(update), seconds=float(seconds))
    elif command["do"] == "save":
        for update, seconds in kept:
            driven.say("snapshot", update=update, seconds=seconds, path=saved(update))
        kept = []
        driven.say("saved")
    elif command["do"] == "quit":
        process.stdin.close()
        process.wait()
        driven.say("done")
        break
    else:
        sys.exit(f"unknown command {line.strip()}")
