"""Translate a Ray Data set, for those whose data lives there: `repose bulk --on ray` needs none of this.

    pip install "ray[data]"
    python examples/ray_data.py MODEL INPUT OUTPUT --checkpoint FOLDER

INPUT: Parquet files with the columns `id` (unique) and `text`. OUTPUT: a folder for Parquet files, with a column
`translation`. FOLDER: on storage that all machines see; what is finished is known there, and not done again.

Written for Ray 2.60. What to know of Ray Data: rows come out in any order, so that `id` is what tells them apart;
checkpoints are beta, and their filters want a core each beside those of the readers and of the models (with two cores
in all a job that went on from one did not end); where a machine dies the job may fail, and the same command goes on.
"""

import argparse
from typing import Any

import ray
from ray.data.checkpoint import CheckpointConfig


class Translate:
    """One model for each actor, loaded once. The model is given by its path: Ray would copy an object."""

    def __init__(self, model: str) -> None:
        import repose

        self.translator = repose.load(model, workers=1)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch of columns, with one more."""
        from repose.decoding.parts import translate_texts

        found = translate_texts(self.translator, [text or "" for text in batch["text"]])
        return {**batch, "translation": [translation.text for translation, _ in found]}


def main() -> None:
    """See above."""
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
    # Without a number of blocks few files become one, for one actor.
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
