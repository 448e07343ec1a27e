"""What the programs here have in common: how they are driven by lines, as README.md says. A program adds how its system trains."""
import json
import os
import sys
import time


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def detected(**versions):
    """What --detect is answered with."""
    print(json.dumps({"python": sys.version.split()[0], **versions}))


def told(*modes, full=False):
    """The Spec, where this program can do what it asks for."""
    spec = json.loads(sys.stdin.readline())
    if spec["version"] != 1 or spec["mode"] not in modes or spec["full"] and not full:
        sys.exit(f"this program does version 1, mode {' or '.join(modes)}{'' if full else ', no full batch'}: not {spec['version']}, {spec['mode']}")
    return spec


def untouched(spec):
    """Whether the system is to run with the settings that it ships with."""
    return bool(spec.get("extra", {}).get("untouched"))


def names(model):
    """The parameters of each layer."""
    if model["outputs"] == 1:
        return [("w", "b")]
    convolutions, dense = len(model.get("convolutions", ())), len(model["hidden"]) + 1
    return [(f"conv{i + 1}", f"conv{i + 1}b") for i in range(convolutions)] + [(f"w{i + 1}", f"b{i + 1}") for i in range(dense)]


def own(spec):
    """The rows that this worker trains on, those of an update after those of the one before, and their labels: it holds no others."""
    import numpy as np
    rank, workers, batch = spec["rank"], spec["workers"], spec["batch"]

    def part(path):
        all = np.load(path, mmap_mode="r")
        if spec["full"]:
            return np.array(all[rank * len(all) // workers:(rank + 1) * len(all) // workers])
        updates = len(all) // (workers * batch)
        shares = all[:updates * workers * batch].reshape(updates, workers, batch, *all.shape[1:])
        return np.array(shares[:, rank]).reshape(updates * batch, *all.shape[1:])
    return part(spec["train_x"]), part(spec["train_y"])


def rows(spec, update, count):
    """Where the rows of an update that is counted from 0 are, among those count that own() returns."""
    if spec["full"]:
        return 0, count
    at = update * spec["batch"] % count
    return at, at + spec["batch"]


def tensors(path):
    """What a safetensors file has: float32 alone."""
    import numpy as np
    with open(path, "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        body = f.read()
    head.pop("__metadata__", None)
    return {n: np.frombuffer(body[slice(*t["data_offsets"])], np.float32).reshape(t["shape"]).copy() for n, t in head.items()}


def save(spec, update, named):
    """Writes a snapshot, whole or not at all, and returns where."""
    import numpy as np
    head, at = {}, 0
    for n, t in named.items():
        head[n] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(head).encode()
    path = os.path.join(spec["out"], f"update-{update:06d}.safetensors")
    with open(path + ".part", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(np.ascontiguousarray(t).tobytes() for t in named.values()))
    os.rename(path + ".part", path)
    return path


def serve(spec, versions, run, parameters, reset):
    """Does what it is told, until it is told to quit. run(begin, end) makes those updates, and returns once the last is complete;
    parameters() are copies by name, or None where the model is another one; reset() puts the initial ones back everywhere."""
    say("ready", versions=versions, threads=spec["threads"])
    done, seconds, kept = 0, 0.0, []  # kept: copies that are not written yet, 202 of half a megabyte at most, or 1.7 of a convolutional net
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "reset":
            reset()
            done, seconds, kept = 0, 0.0, []
            say("ready")
        elif command["do"] == "run":
            due, end = sorted(command.get("snapshots") or ()) if spec["rank"] == 0 else [], done + command["updates"]
            for to in [u for u in due if done < u < end] + [end]:
                begin = time.perf_counter()
                run(done, to)
                seconds += time.perf_counter() - begin
                done = to
                if to in due and (named := parameters()) is not None:
                    kept.append((to, seconds, named))
            say("update", update=done, seconds=seconds)
        elif command["do"] == "save":  # nothing is measured any more
            for update, clock, named in kept:
                say("snapshot", update=update, seconds=clock, path=save(spec, update, named))
            kept = []
            say("saved")
        elif command["do"] == "quit":
            return
        else:
            sys.exit(f"unknown command {line.strip()}")
    else:
        os._exit(1)  # nobody is there any more
