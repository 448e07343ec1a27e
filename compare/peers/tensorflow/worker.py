"""TensorFlow's replicated training, between graphs, with parameter servers: driven as compare/peers/README.md says.

The 1.x interface: variables on the servers by replica_device_setter; `async` applies each worker's gradient as it comes, `sync` has a
SyncReplicasOptimizer. The rows are a variable of the worker, so that a step feeds one number. `worker.py --detect` prints what is here.
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import driven  # noqa: E402

if sys.argv[1:] == ["--detect"]:
    import tensorflow
    driven.detected(tensorflow=tensorflow.__version__)
    sys.exit()

spec = driven.told("sync", "async")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_eager_execution()
rank, workers, batch, model = spec["rank"], spec["workers"], spec["batch"], spec["model"]
cluster = tf1.train.ClusterSpec({"ps": spec["addresses"]["server"], "worker": spec["addresses"]["worker"]})
config = tf1.ConfigProto() if driven.untouched(spec) else tf1.ConfigProto(intra_op_parallelism_threads=spec["threads"], inter_op_parallelism_threads=2)
job = "ps" if spec["role"] == "server" else "worker"
server = tf1.train.Server(cluster, job_name=job, task_index=rank, config=config)
if job == "ps":
    driven.say("ready")
    sys.stdin.read()  # until its end
    os._exit(0)

init = driven.tensors(spec["init"])
binary = model["outputs"] == 1
names = driven.names(model)
data_x, data_y = driven.own(spec)
count = len(data_y)
with tf1.device(f"/job:worker/task:{rank}"):
    feed_x, feed_y = tf1.placeholder(tf.float32, data_x.shape), tf1.placeholder(tf.int32, data_y.shape)
    rows_x = tf1.Variable(feed_x, trainable=False, collections=[tf1.GraphKeys.LOCAL_VARIABLES], name=f"x{rank}")
    rows_y = tf1.Variable(feed_y, trainable=False, collections=[tf1.GraphKeys.LOCAL_VARIABLES], name=f"y{rank}")
with tf1.device(tf1.train.replica_device_setter(worker_device=f"/job:worker/task:{rank}", cluster=cluster)):
    at = tf1.placeholder(tf.int32, [])
    x, y = rows_x[at:at + batch], rows_y[at:at + batch]
    h, variables, feeds, sets = x, {}, {}, []
    for i, pair in enumerate(names):
        for n in pair:
            variables[n] = tf1.get_variable(n, init[n].shape, tf.float32, tf1.zeros_initializer())
            feeds[n] = tf1.placeholder(tf.float32, init[n].shape)
            sets.append(tf1.assign(variables[n], feeds[n]))
        h = tf.matmul(h, variables[pair[0]]) + variables[pair[1]]
        if i < len(names) - 1:
            h = tf.nn.relu(h)
    if binary:
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(y, tf.float32)[:, None], logits=h))
    else:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h))
    step = tf1.train.get_or_create_global_step()
    optimizer = tf1.train.GradientDescentOptimizer(spec["rate"])
    hooks = []
    if spec["mode"] == "sync":
        optimizer = tf1.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=workers, total_num_replicas=workers)
        hooks = [optimizer.make_session_run_hook(rank == 0, num_tokens=0)]
    train = optimizer.minimize(loss, global_step=step)

scaffold = tf1.train.Scaffold(local_init_op=tf1.group(tf1.local_variables_initializer(), *( [optimizer.chief_init_op if rank == 0 else optimizer.local_step_init_op] if spec["mode"] == "sync" else [])),
                              local_init_feed_dict={feed_x: data_x, feed_y: data_y})
ready_for = optimizer.ready_for_local_init_op if spec["mode"] == "sync" else None
if ready_for is not None:
    scaffold._ready_for_local_init_op = ready_for
creator = (tf1.train.ChiefSessionCreator if rank == 0 else tf1.train.WorkerSessionCreator)(scaffold=scaffold, master=server.target, config=config)
if rank > 0 and not driven.untouched(spec):
    creator._get_session_manager()._recovery_wait_secs = 1  # it looks so often whether the chief is ready: 30 s as it ships
session = tf1.train.MonitoredSession(creator, hooks=hooks)
scaffold.local_init_feed_dict.clear()
del data_x, data_y  # the variables have them by now
raw = session._tf_sess()  # hooks are for the start; a step is a plain call


def start():
    if rank == 0:
        raw.run(sets, {feeds[n]: v for n, v in init.items()})


start()
step_at = raw.make_callable(train, feed_list=[at])


def run(begin, end):
    for update in range(begin, end):
        step_at(driven.rows(spec, update, count)[0])


driven.serve(spec, {"tensorflow": tf.__version__}, run, lambda: raw.run(variables), start)
driven.say("done")
os._exit(0)  # a session that leaves first would keep the others waiting
