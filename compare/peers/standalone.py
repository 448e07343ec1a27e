"""python standalone.py ROW SPEC.json UPDATES [PYTHON]: runs a row of a peer without the harness, on this machine's loopback.

No namespaces, no bound cores, nothing that measures: it shows what the harness takes. SPEC.json has what a Spec has but roles and places.
It prints the samples per second of all workers together, after a warm-up of a fifth as many updates.
"""
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

row, path, updates = sys.argv[1], sys.argv[2], int(sys.argv[3])
python = sys.argv[4] if len(sys.argv) > 4 else sys.executable
here = os.path.dirname(os.path.abspath(__file__))
with open(path) as f:
    spec = json.load(f)
for file in glob.glob(os.path.join(here, "*", "peer.json")):
    with open(file) as f:
        peer = json.load(f)
    found = [r for r in peer["rows"] if r["name"] == row]
    if found:
        break
else:
    sys.exit(f"there is no row {row}")
row = {**peer, **found[0]}
count = {role: n if isinstance(n, int) else spec["workers"] if n == "workers" else 1 for role, n in row["roles"].items()}
places = [(role, rank) for role in ("scheduler", "server", "worker") for rank in range(count.get(role, 0))]
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in places]
spec["addresses"] = {role: [f"127.0.0.1:{s.getsockname()[1]}" for (r, _), s in zip(places, sockets) if r == role] for role in count}
for s in sockets:
    s.close()
spec.update({"version": 1, "mode": row["mode"], "staleness": row.get("staleness", 0), "servers": 1, "interface": "lo",
             "extra": row.get("extra", {}), "clocks": row.get("clocks", 0)})
lead, processes = row.get("lead", "worker"), []


def tell(line, answer):
    for p in leads:
        p.stdin.write(json.dumps(line) + "\n")
        p.stdin.flush()
    return [hear(p, answer) for p in leads]


def hear(p, answer):
    for line in p.stdout:
        word = json.loads(line)
        if word["event"] == answer:
            return word
    sys.exit(f"a process ended with {p.wait()} before it said {answer}")


with tempfile.TemporaryDirectory() as out:
    try:
        for role, rank in places:
            words = [w.replace("{python}", python).replace("{env}", os.path.dirname(os.path.dirname(python))) for w in row["program"]]
            p = subprocess.Popen(words, cwd=os.path.dirname(file), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
            p.role = role
            processes.append(p)
            place = os.path.join(out, f"{role}-{rank}")
            os.mkdir(place)
            p.stdin.write(json.dumps({**spec, "role": role, "rank": rank, "out": place}) + "\n")
            p.stdin.flush()
        leads = [p for p in processes if p.role == lead]
        for p in leads:
            hear(p, "ready")
        tell({"do": "run", "updates": max(2, updates // 5)}, "update")
        tell({"do": "reset"}, "ready")
        said = tell({"do": "run", "updates": updates}, "update")
        each = spec["rows"] / spec["clocks"] if spec["clocks"] else spec["rows"] if spec["full"] else spec["batch"] * spec["workers"]
        print(round(updates * each / max(w["seconds"] for w in said)))
    finally:
        for p in processes:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait()
