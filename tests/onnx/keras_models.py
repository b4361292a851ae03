"""Models of Keras, exported from TensorFlow by tf2onnx, as cases for nodes.c, and their table in
docs/onnx.md.

    keras_models.py write FOLDER    writes the cases into the folder, if it does not have them
    keras_models.py check FOLDER    compares the table with the results of nodes.c
    keras_models.py page FOLDER     replaces the table

The models have random weights and small sizes; the batch has any size, and for sequences of tokens
also the length.  A case has TensorFlow's outputs and, for floating inputs, the gradient of the mean
of their squares with respect to the input.  See cases.py for the folder and page.py for the table.
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"      # its gradients of convolutions crash in 2.16

# pylint: disable=wrong-import-position
import keras
import numpy as np
import tensorflow as tf
import tf2onnx
from keras import layers as kl

import cases
import page

BATCH = 3


def images(*shape):
    return keras.Input(shape), np.random.rand(BATCH, *(size or 40 for size in shape))


def tokens(count=50, length=9):
    return keras.Input((None,), dtype="int32"), np.random.randint(0, count, (BATCH, length))


def mlp():
    x, sample = images(7)
    y = x
    for activation in ("gelu", "selu", "softplus", "mish", "hard_sigmoid"):
        y = kl.Dense(16, activation=activation)(y)
    return x, kl.Dense(3, activation="softmax")(y), sample


def lenet():
    x, sample = images(28, 28, 1)
    y = kl.AveragePooling2D(2)(kl.Conv2D(6, 5, activation="tanh", padding="same")(x))
    y = kl.MaxPooling2D(2)(kl.Conv2D(16, 5, activation="tanh")(y))
    y = kl.Dense(120, activation="relu")(kl.Flatten()(y))
    return x, kl.Dense(10)(y), sample


def mobile():
    """Convolutions of all kinds, with strides and padding that is not the same on both sides"""
    x, sample = images(32, 32, 3)
    y = kl.ReLU(6)(kl.BatchNormalization()(kl.Conv2D(16, 3, strides=2, padding="same")(x)))
    y = kl.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(y)
    y = kl.Activation("swish")(kl.BatchNormalization()(y))
    y = kl.LeakyReLU()(kl.SeparableConv2D(24, 3, strides=2, padding="same")(y))
    y = kl.PReLU(shared_axes=[1, 2])(kl.Conv2D(24, (3, 1), padding="same")(y))
    y = kl.Dropout(0.3)(kl.GlobalAveragePooling2D()(kl.AveragePooling2D(3, 2, padding="same")(y)))
    return x, kl.Dense(10, activation="softmax")(y), sample


def resnet():
    def norm(y, features, stride=1, kernel=3):
        y = kl.Conv2D(features, kernel, strides=stride, padding="same", use_bias=False)(y)
        return kl.BatchNormalization()(y)
    x, sample = images(None, None, 3)
    y = kl.MaxPooling2D(3, 2, padding="same")(kl.ReLU()(norm(x, 8, 2, 7)))
    for features, stride in ((8, 1), (16, 2)):
        inner = norm(kl.ReLU()(norm(y, features, stride)), features)
        y = norm(y, features, stride, 1) if stride > 1 else y
        y = kl.ReLU()(kl.Add()([y, inner]))
    return x, kl.Dense(5)(kl.GlobalMaxPooling2D()(y)), sample


def unet():
    x, sample = images(32, 32, 3)
    side = kl.Conv2D(8, 3, padding="same", activation="relu")(x)
    y = kl.MaxPooling2D()(side)
    y = kl.Conv2D(16, 3, padding="same", activation="elu", dilation_rate=2)(y)
    y = kl.Conv2DTranspose(8, 3, strides=2, padding="same")(y)
    y = kl.UpSampling2D(2)(kl.Concatenate()([y, side]))
    y = kl.UpSampling2D(2, interpolation="bilinear")(y)
    y = kl.Cropping2D(2)(kl.ZeroPadding2D(1)(y))
    return x, kl.Conv2D(2, 1, activation="sigmoid")(y), sample


def sound():
    x, sample = images(50, 4)
    y = kl.MaxPooling1D()(kl.Conv1D(8, 5, padding="causal", activation="relu")(x))
    y = kl.GlobalAveragePooling1D()(kl.LayerNormalization()(kl.Conv1D(8, 3)(y)))
    return x, kl.Dense(3)(y), sample


def recurrent(layer, reads_tokens=True):
    def make():
        x, sample = tokens() if reads_tokens else images(9, 12)
        y = kl.Embedding(50, 12)(x) if reads_tokens else x
        return x, kl.Dense(4)(layer()(y)), sample
    return make


def block(y, width, causal=False):
    inner = kl.LayerNormalization(epsilon=1e-6)(y)
    inner = kl.MultiHeadAttention(2, width // 2)(inner, inner, use_causal_mask=causal)
    y = kl.Add()([y, inner])
    inner = kl.Dense(2 * width, activation="gelu")(kl.LayerNormalization(epsilon=1e-6)(y))
    return kl.Add()([y, kl.Dense(width)(inner)])


def transformer(causal):
    def make():
        x, sample = tokens()
        y = block(block(kl.Embedding(50, 16)(x), 16, causal), 16, causal)
        return x, kl.Dense(50)(y), sample
    return make


def vit():
    x, sample = images(32, 32, 3)
    y = block(kl.Reshape((16, 16))(kl.Conv2D(16, 8, strides=8)(x)), 16)
    return x, kl.Dense(4)(kl.GlobalAveragePooling1D()(y)), sample


MODELS = {
    "mlp": mlp, "lenet": lenet, "mobile": mobile, "resnet": resnet, "unet": unet, "sound": sound,
    "lstm": recurrent(lambda: kl.LSTM(10)),
    "lstm_sequences": recurrent(lambda: kl.LSTM(10, return_sequences=True), False),
    "lstm_both_ways": recurrent(lambda: kl.Bidirectional(kl.LSTM(6))),
    "gru": recurrent(lambda: kl.GRU(10)),
    "gru_reset_before": recurrent(lambda: kl.GRU(10, reset_after=False), False),
    "rnn": recurrent(lambda: kl.SimpleRNN(10)),
    "encoder": transformer(False), "decoder": transformer(True), "vit": vit,
}
OPSETS = {"resnet": (9, 11, 15, 18), "lstm": (11, 15, 18), "encoder": (13, 15, 18)}


def prepare(model):
    """Gives norms, whose parameters begin as 0 or 1, random values."""
    for weight in model.weights:
        if weight.name in ("gamma", "beta", "moving_mean", "moving_variance", "bias"):
            weight.assign(np.random.uniform(0.5, 1.5, weight.shape))
    return model


def write(folder):
    suite = cases.Suite(folder, f"TensorFlow {tf.__version__}, Keras {keras.__version__} and "
                        f"tf2onnx {tf2onnx.__version__}", __file__)
    if suite.made:
        return
    for name, make in MODELS.items():
        keras.utils.set_random_seed(len(name))
        into, out, sample = make()
        model = prepare(keras.Model(into, out))
        x = tf.constant(sample, dtype=into.dtype)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            if x.dtype.is_floating:
                tape.watch(x)
            y = model(x, training=False)
            loss = tf.reduce_mean(y ** 2)
        grad = tape.gradient(loss, x).numpy() if x.dtype.is_floating else None
        spec = [tf.TensorSpec(into.shape, into.dtype, name="x")]
        function = tf.function(lambda x, m=model: m(x, training=False), input_signature=spec)
        for opset in OPSETS.get(name, (15,)):
            file, _ = tf2onnx.convert.from_function(function, input_signature=spec, opset=opset)
            suite.add(f"{name}-{opset}", f"opset {opset}", file.SerializeToString(), [x.numpy()],
                      [y.numpy()], rtol=1e-4, atol=1e-4 * min(1.0, float(np.abs(y).max())),
                      flags="t", grad=grad)
    suite.end()


if __name__ == "__main__":
    page.run(write, "keras_models")
