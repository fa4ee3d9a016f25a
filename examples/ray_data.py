"""Translate a Ray Dataset, if your data is in one. Otherwise use `repose bulk --on ray`, which needs no code.

    pip install "ray[data]"
    python examples/ray_data.py MODEL INPUT OUTPUT --checkpoint FOLDER

INPUT: Parquet files with the columns `id` (unique) and `text`. OUTPUT: a folder for Parquet files, with a column
`translation`. FOLDER: a folder that all machines share, which records the finished rows so that a job can resume.

Written for Ray 2.60. Three things to know about Ray Data. Rows come out in any order, so use `id` to identify them.
Checkpoints are beta: their filters need a core each, besides those of the readers and the models (with two cores in
total, a resumed job did not end). If a machine dies, the job may fail; run the same command again to resume.
"""

import argparse
from typing import Any

import ray
from ray.data.checkpoint import CheckpointConfig


class Translate:
    """Translates batches. Each actor loads the model once, from its path: Ray would copy a model object."""

    def __init__(self, model: str) -> None:
        import repose

        self.translator = repose.load(model, workers=1)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return a batch of columns with the column `translation` added."""
        from repose.decoding.parts import translate_texts

        found = translate_texts(self.translator, [text or "" for text in batch["text"]])
        return {**batch, "translation": [translation.text for translation, _ in found]}


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "input", "output"):
        parser.add_argument(name)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--actors", type=int, help="Default: all cores but two.")
    given = parser.parse_args()
    ray.init()
    actors = given.actors or max(1, int(ray.cluster_resources()["CPU"]) - 2)
    context = ray.data.DataContext.get_current()
    context.checkpoint_config = CheckpointConfig(
        id_column="id", checkpoint_path=given.checkpoint, delete_checkpoint_on_success=False
    )
    # Without a number of blocks, a few files become a single block, for a single actor.
    rows = ray.data.read_parquet(given.input, override_num_blocks=4 * actors)
    rows = rows.map_batches(
        Translate,
        fn_constructor_args=(given.model,),
        batch_size=1024,
        num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=actors),
    )
    rows.write_parquet(given.output)


if __name__ == "__main__":
    main()
