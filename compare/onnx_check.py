#!/usr/bin/env python3
"""Run exported ONNX models in ONNX Runtime and compare with expected outputs.

    onnx_check.py MODEL INPUT.npy EXPECTED.npy   # one input, one output (the model's first)
    onnx_check.py FOLDER...                      # model.onnx, in_NAME.npy, out_NAME.npy in each

Needs: pip install onnx onnxruntime numpy. Folders come from `go test ./graph/onnx -dir DIR`.
Exit code 1 if anything differs by more than 1e-5 relative to the larger of 1 and the value.
"""
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort

TOLERANCE = 1e-5


def run(model, inputs, expected):
    """inputs and expected: name -> array, or one array under None. Returns the worst difference."""
    onnx.checker.check_model(onnx.load(model), full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = {name or session.get_inputs()[0].name: array for name, array in inputs.items()}
    names = [name or session.get_outputs()[0].name for name in expected]
    worst = 0.0
    for name, got, want in zip(names, session.run(names, feeds), expected.values()):
        if got.shape != want.shape or got.dtype != want.dtype:
            raise SystemExit(f"{model}: {name}: got {got.dtype}{got.shape}, want {want.dtype}{want.shape}")
        if got.dtype.kind != "f":
            worst = max(worst, float((got != want).any()))
        elif got.size:
            got, want = got.astype(np.float64), want.astype(np.float64)
            worst = max(worst, float((abs(got - want) / np.maximum(1, abs(want))).max()))
    return worst


def folder(path):
    files = {prefix: {f[len(prefix):-4]: np.load(os.path.join(path, f)) for f in sorted(os.listdir(path))
                      if f.startswith(prefix) and f.endswith(".npy")} for prefix in ("in_", "out_")}
    return run(os.path.join(path, "model.onnx"), files["in_"], files["out_"])


def main(args):
    if len(args) == 3 and args[0].endswith(".onnx"):
        results = {args[0]: run(args[0], {None: np.load(args[1])}, {None: np.load(args[2])})}
    elif args and all(os.path.isdir(a) for a in args):
        results = {a: folder(a) for a in args}
    else:
        raise SystemExit(__doc__)
    for name, worst in results.items():
        print(f"{'ok  ' if worst <= TOLERANCE else 'FAIL'} {name}: worst difference {worst:.2e}")
    return int(any(not worst <= TOLERANCE for worst in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
