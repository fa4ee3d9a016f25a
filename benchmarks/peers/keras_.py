"""TensorFlow's tutorial Transformer with Keras, in both exact configurations, trained as in the tutorial.

`reinforced` normalises token columns over each sentence, as printed in the paper. The training step is one graph for
all shapes, without XLA, which would compile each shape separately. bf16 is Keras' policy mixed_bfloat16.
"""

import os

os.environ |= {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}

import keras
import tensorflow as tf
from keras_model import KerasTransformer
from protocol import ADAM_BETAS, ADAM_EPS, LEARNING_RATE, PAD, Workload, parse, serve


def main() -> None:
    """Command-line entry point: train until stdin ends."""
    options = parse(__doc__, tasks=("train",), sizes=("exact",))
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    if options.precision == "bf16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    workload = Workload(options)
    model = KerasTransformer(options.sizes, workload.src_vocab_size, workload.tgt_vocab_size)
    variables = list(model.weights().values())
    optimizer = keras.optimizers.Adam(LEARNING_RATE, beta_1=ADAM_BETAS[0], beta_2=ADAM_BETAS[1], epsilon=ADAM_EPS)
    optimizer.build(variables)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function(input_signature=3 * [tf.TensorSpec([None, None], tf.int64)])
    def step(src: tf.Tensor, tgt: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = tf.cast(model(src, tgt, training=True), tf.float32)
            real = tf.cast(labels != PAD, tf.float32)
            loss = tf.reduce_sum(cross_entropy(labels, logits) * real) / tf.reduce_sum(real)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def run(numbers: list[int]) -> int:
        tokens = 0
        for number in numbers:
            batch = workload.train_batch(number)
            step(*map(tf.constant, batch[:3])).numpy()
            tokens += batch.tokens
        return tokens

    parameters = sum(int(tf.size(variable)) for variable in variables)
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    serve(options, workload.num_batches, run, name="Keras tutorial", parameters=parameters, versions=versions)


if __name__ == "__main__":
    main()
