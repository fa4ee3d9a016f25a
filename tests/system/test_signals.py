"""Signals as requests to stop."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from repose.system.signals import Interrupted, StopSignals, ended_by_signals, holding_back_signals, interruptible

NAMES = [name for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1") if hasattr(signal, name)]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {name: signal.getsignal(getattr(signal, name)) for name in NAMES}
    yield
    assert {name: signal.getsignal(getattr(signal, name)) for name in NAMES} == before


def send(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))


def remembered_then_interrupted(name: str) -> None:
    with interruptible():
        with StopSignals() as signals:
            send(name)
            assert signals.received == name
        send(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_is_remembered_or_ends_at_once(name: str) -> None:
    with StopSignals() as signals:
        send(name)
        assert signals.received == name
    with pytest.raises(Interrupted) as caught:
        remembered_then_interrupted(name)
    assert caught.value.name == name
    assert not isinstance(caught.value, Exception)


def test_an_event_asks_until_a_signal_says_more() -> None:
    stop = threading.Event()
    with StopSignals(stop) as signals:
        assert signals.received is None
        stop.set()
        assert signals.received == "stop"
        send("SIGTERM")
        assert signals.received == "SIGTERM"


def test_the_first_signal_counts_and_a_second_interrupt_ends_at_once() -> None:
    with StopSignals() as signals:
        send("SIGTERM")
        send("SIGINT")
        assert signals.received == "SIGTERM"
    with StopSignals():
        send("SIGINT")
        with pytest.raises(KeyboardInterrupt):
            send("SIGINT")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "SIGINT"])
def test_a_further_signal_ends_what_the_first_one_asked_to_end(name: str) -> None:
    code = (
        f"import os, signal\nfrom repose.system.signals import ended_by_signals\nme, one = os.getpid(), signal.{name}\n"
        "with ended_by_signals():\n try:\n  os.kill(me, one)\n"
        " finally:\n  print('tidies', flush=True)\n  os.kill(me, one)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-getattr(signal, name), "tidies\n", "")


def test_ctrl_c_is_what_it_was_where_the_others_end_a_command() -> None:
    with ended_by_signals(), pytest.raises(KeyboardInterrupt):
        send("SIGINT")
    with pytest.raises(Interrupted, match="SIGTERM"), ended_by_signals():
        send("SIGTERM")


@pytest.mark.skipif("SIGHUP" not in NAMES, reason="no SIGHUP")
def test_under_nohup_a_hangup_is_no_request() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible(), StopSignals() as signals:
            send("SIGHUP")
            assert signals.received is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_program_that_embeds_python_keeps_its_own_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    known = signal.getsignal
    monkeypatch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGTERM else known(number))
    before = known(signal.SIGTERM)
    with interruptible():
        assert known(signal.SIGTERM) is before
        assert known(signal.SIGINT) is not signal.default_int_handler
    assert known(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="POSIX signals")
@pytest.mark.parametrize("name", NAMES)
def test_a_process_started_while_they_are_held_back_gets_them_when_it_listens(name: str) -> None:
    code = "from repose.system.signals import StopSignals\nwith StopSignals() as s: print(s.received)"
    with holding_back_signals():
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child.send_signal(getattr(signal, name))
    assert child.communicate(timeout=60)[0].strip() == name
    assert child.returncode == 0


SPAWNING = """
import multiprocessing, signal
from repose.system.signals import holding_back_signals

def tell():
    print(sorted(number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])))

if __name__ == "__main__":
    with holding_back_signals():
        child = multiprocessing.get_context("spawn").Process(target=tell)
        child.start()
    child.join()
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="POSIX signals")
def test_they_are_held_back_from_the_first_process_that_python_starts(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SPAWNING)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "['SIGHUP', 'SIGINT', 'SIGTERM', 'SIGUSR1']\n", done.stderr


def test_outside_the_main_thread_nothing_changes() -> None:
    found: list[object] = []

    def look() -> None:
        with interruptible(), StopSignals():
            found.extend(signal.getsignal(getattr(signal, name)) for name in NAMES)

    before = [signal.getsignal(getattr(signal, name)) for name in NAMES]
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == before
