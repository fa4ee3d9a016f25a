import json
from pathlib import Path

from records import machine, read, record, table, write


def test_record_is_json_without_names_of_the_machine(tmp_path: Path) -> None:
    write(tmp_path / "new" / "out.json", record("test", pairs=3))
    content = read(tmp_path / "new" / "out.json")
    assert list(content) == ["benchmark", "date", "machine", "pairs"]
    assert (content["benchmark"], content["pairs"]) == ("test", 3)
    assert content["machine"].keys() == {"cpu", "cores", "memory", "system", "release", "python"}
    assert machine()["cores"] >= 1


def test_a_file_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    assert read(None) == read(tmp_path / "out.json") == {}
    write(None, {"a": 1})
    write(tmp_path / "out.json", {"a": "é"})
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8")) == {"a": "é"}


def test_table_aligns() -> None:
    lines = table(["name", "rate"], [["a", "1"], ["longer", "1,000"]]).splitlines()
    assert lines == ["name     rate", "------  -----", "a           1", "longer  1,000"]
