"""Models of scikit-learn, exported by skl2onnx, as cases for nodes.c, and their table in
docs/onnx.md.

    scikit.py write FOLDER    writes the cases into the folder, if it does not have them
    scikit.py check FOLDER    compares the table with the results of nodes.c, FOLDER/results.txt
    scikit.py page FOLDER     replaces the table

A case has the outputs of scikit-learn: of a classifier the classes, and the probabilities or the
values of the decision function; else the predictions or the transformed features.  Classifiers with
probabilities are exported with the option zipmap=False and without ("-map"); those of texts also
without the classes ("-probabilities"), which is the cure that wb_load names.  See cases.py for the
folder and page.py for the table.
"""
import warnings

import numpy as np
import onnx
import skl2onnx
import sklearn
from sklearn import (calibration, cluster, compose, decomposition, discriminant_analysis, ensemble,
                     feature_selection, impute, linear_model, multiclass, naive_bayes,
                     neural_network, pipeline, preprocessing, svm, tree)

import cases
import page

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(150, 5)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
GAPS = np.where(RANDOM.random(X.shape) < 0.1, np.float32(np.nan), X)
WHOLE = RANDOM.integers(2, 6, size=(150, 3))
TWO, THREE = (X[:, 0] > 0).astype(np.int64), 3 + 2 * np.argmax(X[:, :3], axis=1)
SEVERAL = (X[:, :3] > 0).astype(np.int64)
REAL = 2 * X[:, 0] + X[:, 1] ** 2
REALS = np.stack([REAL, -X[:, 2]], axis=1)
TEXTS = np.array(["", "", "", "ant", "", "bee", "", "cat"])[THREE]
TEST = 6                                        # rows of a case


def mlp(kind, sizes=(8,), **more):
    return kind(hidden_layer_sizes=sizes, random_state=0, max_iter=60, **more)


def scaled(*steps):
    return pipeline.make_pipeline(preprocessing.StandardScaler(), *steps)


CLASSIFIER, REGRESSOR = neural_network.MLPClassifier, neural_network.MLPRegressor
LOGISTIC = linear_model.LogisticRegression
# name: (model, features, targets)
MODELS = {
    "mlp_two": (mlp(CLASSIFIER), X, TWO),
    "mlp_three": (mlp(CLASSIFIER, (8, 6), activation="tanh"), X, THREE),
    "mlp_logistic": (mlp(CLASSIFIER, activation="logistic"), X, THREE),
    "mlp_several": (mlp(CLASSIFIER), X, SEVERAL),
    "mlp_f64": (mlp(CLASSIFIER), X.astype(np.float64), THREE),
    "mlp_texts": (mlp(CLASSIFIER), X, TEXTS),
    "mlp_regressor": (mlp(REGRESSOR), X, REAL),
    "mlp_identity": (mlp(REGRESSOR, (8, 4, 3), activation="identity"), X, REAL),
    "scaler_mlp": (scaled(mlp(CLASSIFIER)), X, THREE),
    "scaler_mlp_regressor": (scaled(mlp(REGRESSOR)), X, REAL),
    "minmax_mlp": (pipeline.make_pipeline(preprocessing.MinMaxScaler(), mlp(CLASSIFIER)), X, TWO),
    "imputer_pca_logistic": (pipeline.make_pipeline(
        impute.SimpleImputer(), preprocessing.StandardScaler(), decomposition.PCA(3), LOGISTIC()),
        GAPS, THREE),
    "columns_mlp": (pipeline.make_pipeline(compose.ColumnTransformer([
        ("a", preprocessing.StandardScaler(), [0, 1]),
        ("b", preprocessing.MinMaxScaler(), [2, 4])]), mlp(REGRESSOR)), X, REAL),
    "union_ridge": (pipeline.make_pipeline(pipeline.make_union(
        preprocessing.StandardScaler(), preprocessing.PolynomialFeatures(2)),
        linear_model.Ridge()), X, REAL),
    "logistic_two": (LOGISTIC(), X, TWO),
    "logistic_three": (LOGISTIC(), X, THREE),
    "logistic_rest": (multiclass.OneVsRestClassifier(LOGISTIC()), X, THREE),
    "logistic_cv": (linear_model.LogisticRegressionCV(), X, TWO),
    "logistic_texts": (LOGISTIC(), X, TEXTS),
    "calibrated": (calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2), X, THREE),
    "bagging": (ensemble.BaggingClassifier(LOGISTIC(), n_estimators=2, random_state=0), X, THREE),
    "linear_discriminant": (discriminant_analysis.LinearDiscriminantAnalysis(), X, THREE),
    "bayes_gauss": (naive_bayes.GaussianNB(), X, THREE),
    "bayes_bernoulli": (naive_bayes.BernoulliNB(), X, THREE),
    "bayes_multinomial": (naive_bayes.MultinomialNB(), POSITIVE, THREE),
    "svc_two": (svm.LinearSVC(), X, TWO),
    "svc_three": (svm.LinearSVC(), X, THREE),
    "sgd_two": (linear_model.SGDClassifier(random_state=0), X, TWO),
    "sgd_log": (linear_model.SGDClassifier(loss="log_loss", random_state=0), X, THREE),
    "sgd_huber": (linear_model.SGDClassifier(loss="modified_huber", random_state=0), X, THREE),
    "ridge_classifier": (linear_model.RidgeClassifier(), X, THREE),
    "perceptron": (linear_model.Perceptron(), X, THREE),
    "linear": (linear_model.LinearRegression(), X, REAL),
    "linears": (linear_model.LinearRegression(), X, REALS),
    "linear_f64": (linear_model.LinearRegression(), X.astype(np.float64), REAL),
    "lasso": (linear_model.Lasso(0.1), X, REAL),
    "svr": (svm.LinearSVR(), X, REAL),
    "poisson": (linear_model.PoissonRegressor(), X, np.abs(REAL)),
    "standard": (preprocessing.StandardScaler(), X, None),
    "minmax": (preprocessing.MinMaxScaler(clip=True), X, None),
    "maxabs": (preprocessing.MaxAbsScaler(), X, None),
    "robust": (preprocessing.RobustScaler(), X, None),
    "normalise_l1": (preprocessing.Normalizer("l1"), X, None),
    "normalise_l2": (preprocessing.Normalizer("l2"), X, None),
    "normalise_max": (preprocessing.Normalizer("max"), POSITIVE, None),
    "binarise": (preprocessing.Binarizer(threshold=0.25), X, None),
    "power": (preprocessing.PowerTransformer(), X, None),
    "quantiles": (preprocessing.QuantileTransformer(n_quantiles=10), X, None),
    "impute": (impute.SimpleImputer(strategy="median"), GAPS, None),
    "polynomial": (preprocessing.PolynomialFeatures(2), X, None),
    "one_hot": (preprocessing.OneHotEncoder(sparse_output=False), WHOLE, None),
    "ordinal": (preprocessing.OrdinalEncoder(), WHOLE, None),
    "bins": (preprocessing.KBinsDiscretizer(3, encode="onehot-dense"), X, None),
    "bins_ordinal": (preprocessing.KBinsDiscretizer(3, encode="ordinal"), X, None),
    "pca": (decomposition.PCA(2, whiten=True), X, None),
    "svd": (decomposition.TruncatedSVD(2), X, None),
    "select": (feature_selection.SelectKBest(k=2), X, THREE),
    "kmeans": (cluster.KMeans(3, random_state=0), X, None),
    "forest": (ensemble.RandomForestClassifier(3, random_state=0), X, THREE),
    "tree": (tree.DecisionTreeRegressor(random_state=0), X, REAL),
    "svc_kernel": (svm.SVC(), X, THREE),
}


def results(model, x):
    """What the model gives for x, in the order of the outputs of its export"""
    if sklearn.base.is_classifier(model):
        if hasattr(model, "predict_proba"):
            return [model.predict(x), model.predict_proba(x)]
        y = model.decision_function(x)
        if y.ndim == 1 and not isinstance(model, svm.LinearSVC):
            y = np.stack([-y, y], axis=1)       # as skl2onnx has the scores of two classes
        return [model.predict(x), y.reshape(len(x), -1)]
    if hasattr(model, "transform") and hasattr(model, "predict"):
        return [model.predict(x).astype(np.int64), model.transform(x)]          # KMeans
    y = model.transform(x) if hasattr(model, "transform") else model.predict(x)
    return [y.reshape(len(x), -1)]


def add(suite, name, group, file, x, values):
    kinds = [cases.kind_of(value.type) for value in file.graph.output]
    wanted = [np.float64 if kind == "double" else np.float32 for kind in kinds]
    values = [value if value.dtype.kind in "iU" else value.astype(dtype)
              for value, dtype in zip(values, wanted)]
    suite.add(name, group, file.SerializeToString(), [x], values, rtol=1e-4, atol=1e-5)


def without_classes(file, folder):
    """The file with its second output alone"""
    paths = str(folder / "whole.onnx"), str(folder / "part.onnx")
    onnx.save(file, paths[0])
    onnx.utils.extract_model(*paths, ["X"], [file.graph.output[1].name])
    return onnx.load(paths[1])


def write(folder):
    suite = cases.Suite(folder, f"scikit-learn {sklearn.__version__} and skl2onnx "
                        f"{skl2onnx.__version__}", __file__)
    if suite.made:
        return
    warnings.simplefilter("ignore")
    for name, (model, x, y) in MODELS.items():
        model.fit(x, y)
        x = x[:TEST]
        steps = model if isinstance(model, pipeline.Pipeline) else [model]
        group, values = ", ".join(type(step).__name__ for step in steps), results(model, x)
        maps = sklearn.base.is_classifier(model) and hasattr(model, "predict_proba")
        file = skl2onnx.to_onnx(model, x[:1], options={"zipmap": False} if maps else None)
        add(suite, name, group, file, x, values)
        if y is TEXTS:
            add(suite, f"{name}-probabilities", group, without_classes(file, suite.folder), x,
                values[1:])
        if maps and x.dtype == np.float32:      # ZipMap has no other dtype
            add(suite, f"{name}-map", group, skl2onnx.to_onnx(model, x[:1]), x, values)
    suite.end()


if __name__ == "__main__":
    page.run(write, "scikit")
