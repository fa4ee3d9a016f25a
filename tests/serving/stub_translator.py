"""A translator that shouts, for worker processes: it knows how large its batches are, and some words do it harm."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from repose.decoding.translator import Hypothesis, Translation
from repose.system.errors import CheckpointError, ReposeError


class Shouting:
    """Takes a millisecond for a batch, and some more for each sentence.

    Where the model's folder has a file `hold`, "slow" renames it to `held` and takes until that is deleted.
    """

    def __init__(self, path: str, **settings: Any) -> None:
        if "missing" in path:
            raise CheckpointError(f"{path} does not exist")
        if "endless" in path:
            Path(path, f"{os.getpid()}.pid").touch()
            os.write(2, b"loading\n")  # at once: others write, too
            time.sleep(1_000)
        config = Path(path) / "config.json"
        self.name = json.loads(config.read_text())["run_id"] if config.exists() else path
        self.settings, self.engine = settings, SimpleNamespace(name="voice")
        self.hold, self.held = (Path(path) / name for name in ("hold", "held"))

    def translate(self, sentences: list[str], *, num_hypotheses: int = 1, **how: Any) -> list[Translation]:
        """In capitals."""
        if "die" in sentences:
            os._exit(1)
        if "fail" in sentences:
            raise ReposeError("it failed")
        if "slow" in sentences and self.hold.exists():  # as long as the test says
            with self.hold.open() as held:  # which moves while a newer model is written around it
                self.hold.rename(self.held)
                while os.fstat(held.fileno()).st_nlink:
                    time.sleep(0.005)
        else:
            time.sleep(0.3 if "slow" in sentences else 0.001 + 0.0002 * len(sentences))
        return [self._shouted(sentence, len(sentences), num_hypotheses, how) for sentence in sentences]

    def _shouted(self, sentence: str, batch: int, number: int, how: dict[str, Any]) -> Translation:
        text = {"batch": str(batch), "model": self.name, "how": f"{how['beam_size']} {how.get('to')}"}.get(
            sentence, sentence.upper()
        )
        hypotheses = (Hypothesis(text, tuple(text.split()), -1.0, -1.0, True),) * number
        return Translation(text, -1.0, hypotheses, ("[START]", *sentence.split(), "[END]"), False)


def load(path: str, **settings: Any) -> Shouting:
    """As `repose.load`."""
    return Shouting(path, **settings)
