import sys
from pathlib import Path

import pytest

from interleave import NOT_INSTALLED, Contestant, Result, as_json, interleave, rotate

OBEDIENT = """
import json, sys
from pathlib import Path
name, log, rate = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
print("a library says hello")
print(json.dumps({"ready": True, "name": name, "parameters": 7}), flush=True)
for line in sys.stdin:
    with log.open("a") as file:
        file.write(name)
    print(json.dumps({"units": int(line) * rate, "seconds": 2.0, "peak_rss": int(line)}), flush=True)
with log.open("a") as file:
    file.write(f"({name} ends)")
"""
MORTAL = """
import sys
print('{"ready": true}', flush=True)
sys.stdin.readline()
print('{"units": 6, "seconds": 1, "peak_rss": 1}', flush=True)
sys.stdin.readline()
sys.exit("too hot\\n")
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def obedient(name: str, log: Path, rate: float = 1.0) -> Contestant:
    return Contestant(name, [sys.executable, "-S", "-c", OBEDIENT, name, str(log), str(rate)])


def script(name: str, code: str) -> Contestant:
    return Contestant(name, [sys.executable, "-S", "-c", code])


def test_order_turns_from_round_to_round(log: Path) -> None:
    results = interleave([obedient(name, log) for name in "abc"], rounds=3, batches=10, warm_rounds=1)
    turns, _, endings = log.read_text().partition("(")
    assert turns == "cab" + "abc" + "bca" + "cab"
    assert endings.count("ends") == 3
    assert [len(result.rates) for result in results.values()] == [3, 3, 3]


def test_rates_are_units_over_seconds(log: Path) -> None:
    results = interleave([obedient("a", log, 4.0), obedient("b", log)], rounds=2, batches=10, warm_rounds=0)
    assert results["a"].rates == [20.0, 20.0]
    assert results["b"].median == results["b"].min == results["b"].max == 5.0
    assert results["a"].peak_rss == 10
    assert results["a"].ready["parameters"] == 7
    assert not results["a"].problem


def test_one_that_dies_is_reported_and_the_others_go_on(log: Path) -> None:
    results = interleave([script("mortal", MORTAL), obedient("a", log)], rounds=3, batches=1, warm_rounds=0)
    assert results["mortal"].problem == "too hot"
    assert results["mortal"].rates == [6.0]
    assert len(results["a"].rates) == 3


def test_one_that_never_gets_ready(log: Path) -> None:
    results = interleave([script("broken", "raise SystemExit(7)"), obedient("a", log)], rounds=1, batches=1)
    assert results["broken"].problem == "ended with exit code 7"
    assert results["broken"].as_json() == {"problem": "ended with exit code 7"}
    assert len(results["a"].rates) == 1


@pytest.mark.parametrize("missing", ["interpreter", "module"])
def test_one_that_is_not_installed(missing: str, tmp_path: Path) -> None:
    if missing == "interpreter":
        contestant = Contestant("x", [str(tmp_path / "bin" / "python")])
    else:
        contestant = script("x", "import no_such_module")
    assert interleave([contestant], rounds=1, batches=1)["x"].problem == NOT_INSTALLED


def test_one_that_says_nothing_is_given_up() -> None:
    results = interleave([script("x", "input()")], rounds=1, batches=1, patience=0.2)
    assert results["x"].problem == "no answer in 0.2 s"


def test_environment_is_added() -> None:
    code = "import os; raise SystemExit(os.environ['GREETING'])"
    contestant = Contestant("x", [sys.executable, "-S", "-c", code], {"GREETING": "hello"})
    assert interleave([contestant], rounds=1, batches=1)["x"].problem == "hello"


def test_results_in_a_record() -> None:
    result = Result(rates=[1.0, 3.0, 2.0], peak_rss=5, ready={"ready": True, "name": "a", "threads": 2})
    figures = {"median": 2.0, "min": 1.0, "max": 3.0, "rates": [1.0, 3.0, 2.0]}
    assert as_json({"a": result}) == {"a": {**figures, "peak_rss": 5, "threads": 2}}


@pytest.mark.parametrize("warm_rounds", [0, 1])
def test_every_job_runs_in_every_round_and_another_begins(warm_rounds: int) -> None:
    order: list[str] = []
    jobs = {name: lambda name=name: float(order.append(name) or len(order)) for name in "abcd"}
    found = rotate(jobs, 2, warm_rounds=warm_rounds)
    assert "".join(order) == warm_rounds * "cdab" + "abcdcdab"
    first = 4.0 * warm_rounds
    assert found == {"a": [first + 1, first + 7], "b": [first + 2, first + 8], "c": [first + 3, first + 5]} | {
        "d": [first + 4, first + 6]
    }
