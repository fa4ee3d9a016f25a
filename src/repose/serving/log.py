"""What the server writes about itself: a JSON object per line on stderr, without texts, keys and addresses."""

import datetime
import json
import traceback
from typing import TextIO


class Log:
    """Writes events to a stream; None: nowhere."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def __call__(self, event: str, **facts: object) -> None:
        """One line."""
        if self._stream is None:
            return
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        print(json.dumps({"time": time, "event": event, **facts}), file=self._stream, flush=True)


def where(error: BaseException) -> list[str]:
    """The places that an error came through. Its sentence may hold a text, and is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
