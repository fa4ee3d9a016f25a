"""Translating lines from files and streams."""

import io
import queue

from repose.decoding import stream


def test_a_line_typed_at_a_windows_console_is_not_held_back() -> None:
    """Each read of the console gives what was typed so far; a buffered one would wait for 64 KiB of it."""
    typed: queue.Queue[bytes] = queue.Queue()

    class Console(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            block = typed.get(timeout=10)
            buffer[: len(block)] = block
            return len(block)

    Console.__name__ = "_WindowsConsoleIO"
    with stream._read(io.BufferedReader(Console()), 4) as lines:
        for line in ("O gato lê.", "Ela lê."):
            typed.put(f"{line}\r\n".encode())
            assert lines.get(timeout=5) == f"{line}\r".encode()
        typed.put(b"")
        assert lines.get(timeout=5) is None
