"""Spark's MLlib as it is shipped: its classifiers train by L-BFGS on the full batch, and an update is an iteration. Its network has sigmoid hidden
units: another model, so no parameters are saved. Driven as compare/peers/README.md says; the cluster is that of worker.py.
"""
import worker
from worker import driven


def driver(spec):
    import numpy as np
    from pyspark.ml.classification import LogisticRegression, MultilayerPerceptronClassifier
    from pyspark.ml.linalg import DenseVector
    spark = worker.session(spec)
    sc = spark.sparkContext
    sc.setLogLevel("ERROR")
    rows, workers, model = spec["rows"], spec["workers"], spec["model"]
    train_x, train_y = spec["train_x"], spec["train_y"]

    def examples(share):
        x, y = np.load(train_x, mmap_mode="r"), np.load(train_y, mmap_mode="r")
        for i in range(*share):
            yield float(y[i]), DenseVector(x[i].astype(float))

    shares = [(r * rows // workers, (r + 1) * rows // workers) for r in range(workers)]
    data = spark.createDataFrame(sc.parallelize(shares, workers).flatMap(examples), ["label", "features"]).cache()
    data.count()  # all in the executors' memory before the clock starts

    def run(begin, end):
        while begin < end:  # it may find that it cannot go lower before it has made all iterations: then it begins again
            if model["hidden"]:
                classifier = MultilayerPerceptronClassifier(layers=[model["inputs"], *model["hidden"], model["outputs"]], maxIter=end - begin, tol=0, seed=42)
            else:
                classifier = LogisticRegression(maxIter=end - begin, tol=0)
            summary = classifier.fit(data).summary
            begin += max(1, (summary() if callable(summary) else summary).totalIterations)

    driven.serve(spec, {"spark": sc.version}, run, lambda: None, lambda: None)


if __name__ == "__main__":
    worker.main(driver)
