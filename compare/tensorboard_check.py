#!/usr/bin/env python3
"""Opens a folder of event files with the real TensorBoard and prints what it finds.

    python3 -m venv venv && venv/bin/pip install tensorboard
    go test ./observe/tensorboard -run TestKeep -keep DIR     (or: trivium train ..., DIR = RUN/tb)
    venv/bin/python compare/tensorboard_check.py DIR

Each record is parsed with TensorBoard's own protocol buffers, plugin contents included; the folder is then loaded by the event
multiplexer and the data provider that the web page is served from. Exit status 1: something is unreadable, or a kind is missing that
was asked for with --want.
"""
import argparse
import collections
import glob
import os
import sys

import tensorboard
from tensorboard import context
from tensorboard.backend.event_processing import data_provider, event_file_loader, plugin_event_multiplexer
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.compat.proto import graph_pb2
from tensorboard.util import tensor_util

KINDS = ["file_version", "scalar", "histogram", "graph", "text", "hparams start", "hparams end", "custom_scalars"]


def kind_of(value):
    """The kind of a summary's value, and what to print of it."""
    plugin = value.metadata.plugin_data.plugin_name
    which = value.WhichOneof("value")
    if which == "simple_value":
        return "scalar", f"{value.simple_value:g}"
    if which == "histo":
        h = value.histo
        assert len(h.bucket_limit) == len(h.bucket) and sum(h.bucket) == h.num, "buckets do not add up"
        return "histogram", f"min {h.min:g} max {h.max:g} num {h.num:g} sum {h.sum:g}, {len(h.bucket)} buckets"
    if plugin == "text":
        return "text", repr(tensor_util.make_ndarray(value.tensor).tolist())
    if plugin == "custom_scalars":
        layout = layout_pb2.Layout.FromString(value.tensor.string_val[0])
        return "custom_scalars", "; ".join(f"{c.title}: {[g.title for g in c.chart]}" for c in layout.category)
    if plugin == "hparams":
        data = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
        if data.WhichOneof("data") == "session_start_info":
            info = data.session_start_info
            text = {k: getattr(v, v.WhichOneof("kind")) for k, v in sorted(info.hparams.items())}
            return "hparams start", f"{text} since {info.start_time_secs:.0f}"
        info = data.session_end_info
        return "hparams end", f"status {info.status} at {info.end_time_secs:.0f}"
    return f"unknown {which} {plugin}", ""


def records(path, found):
    loader = event_file_loader.LegacyEventFileLoader(path)
    for event in loader.Load():
        what = event.WhichOneof("what")
        if what == "file_version":
            found[what] += 1
            print(f"  file_version {event.file_version} by {event.source_metadata.writer!r}")
        elif what == "graph_def":
            graph = graph_pb2.GraphDef.FromString(event.graph_def)
            found["graph"] += 1
            print(f"  graph of {len(graph.node)} nodes: " + ", ".join(f"{n.name}({', '.join(n.input)})" for n in graph.node)[:200])
        elif what == "summary":
            for value in event.summary.value:
                kind, text = kind_of(value)
                if not found[kind] or kind not in ("scalar", "histogram"):
                    print(f"  step {event.step} {kind} {value.tag}: {text}")
                found[kind] += 1


def served(folder):
    """What the web page would get."""
    multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(folder)
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, folder)
    ctx = context.RequestContext()
    for run, _ in multiplexer.Runs().items():
        for plugin, listing in [("scalars", provider.list_scalars), ("histograms", provider.list_tensors), ("text", provider.list_tensors),
                                ("hparams", provider.list_tensors), ("custom_scalars", provider.list_tensors),
                                ("graphs", provider.list_blob_sequences)]:
            name = hparams_metadata.PLUGIN_NAME if plugin == "hparams" else plugin
            tags = sorted(listing(ctx, experiment_id="", plugin_name=name).get(run, {}))
            print(f"  served: run {run!r} {plugin}: {tags}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--want", nargs="*", default=[], choices=KINDS, help="kinds that must be there; 'all' kinds are printed anyway")
    options = parser.parse_args()
    paths = sorted(glob.glob(os.path.join(options.folder, "**", "*tfevents*"), recursive=True))
    print(f"tensorboard {tensorboard.__version__}, {len(paths)} event files")
    if not paths:
        sys.exit("no event files")
    found = collections.Counter()
    for path in paths:
        print(os.path.basename(path))
        records(path, found)
    served(options.folder)
    print("records: " + ", ".join(f"{k} {found[k]}" for k in KINDS))
    bad = [k for k in found if k not in KINDS] + [k for k in options.want if not found[k]]
    if bad:
        sys.exit(f"missing or unknown: {bad}")


if __name__ == "__main__":
    main()
