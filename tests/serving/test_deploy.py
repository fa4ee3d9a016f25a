"""The container file and the systemd unit: they keep their promises and use existing options."""

import configparser
import dataclasses
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from repose.serving.settings import ServeSettings

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "repose-serve.service"
DRAIN_SECONDS = next(field.default for field in dataclasses.fields(ServeSettings) if field.name == "drain_seconds")


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, lines that go on put together."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def commands() -> list[str]:
    """`repose serve` with its options, in files and in documentation."""
    entry = next(argument for name, argument in instructions() if name == "ENTRYPOINT")
    texts = [" ".join(re.findall(r'"([^"]*)"', entry)), UNIT.read_text(encoding="utf-8")]
    texts += [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "serving.md", ROOT / "README.md")]
    return [found for text in texts for found in re.findall(r"repose serve[^\n`|#]*", text)]


def test_options_are_those_of_the_command_line(run_repose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    code, out, _ = run_repose("serve", "--help")
    known = set(re.findall(r"--[a-z-]+", out))
    assert code == 0
    assert "--char-limit" in known
    used = {option for command in commands() for option in re.findall(r"--[a-z-]+", command)}
    assert used
    assert used <= known
    listed = re.findall(r"^\| `(--[a-z-]+)", (ROOT / "docs" / "serving.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed
    assert set(listed) <= known


def test_the_container_is_no_one_and_checks_its_health() -> None:
    found = instructions()
    last = [name for name, _ in found][max(i for i, (name, _) in enumerate(found) if name == "FROM") :]
    about = dict(found)
    known = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    assert {name for name, _ in found} <= known | {"ENTRYPOINT", "CMD"}
    assert not about["USER"].startswith(("root", "0"))
    assert last.index("USER") < last.index("ENTRYPOINT")
    assert "/health/ready" in about["HEALTHCHECK"]
    check = json.loads(about["HEALTHCHECK"].partition("CMD ")[2])
    compile(check[2], "HEALTHCHECK", "exec")
    environment = " ".join(argument for name, argument in found if name == "ENV")
    assert {"LT_HOST=0.0.0.0", "LT_PORT=5000"} <= set(environment.split()), "variables, which a compose file can change"
    assert about["ENTRYPOINT"].startswith("["), "a shell would not hand SIGTERM on"
    assert all(":" in argument.split()[0] for name, argument in found if name == "FROM"), "a version of each image"
    assert not any(":latest" in argument for name, argument in found if name == "FROM")
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = [argument.split()[:-1] for name, argument in found if name == "COPY" and "--from" not in argument]
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists()
        assert f"!{source.removeprefix('./')}" in ignored


def test_the_unit() -> None:
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT, encoding="utf-8")
    service = parser["Service"]
    command = shlex.split(service["ExecStart"])
    assert float(service["TimeoutStopSec"]) > float(command[command.index("--drain-seconds") + 1])
    assert service["KillMode"] == "mixed", "workers are not to be stopped before their parent has drained"
    assert "-HUP" in service["ExecReload"]
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")


def compose() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    return dict(found["services"]["translate"])


def pod() -> dict[str, Any]:
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8"))
    return dict(next(found for found in documents if found["kind"] == "Deployment")["spec"]["template"]["spec"])


def test_options_and_variables_of_the_files_for_containers(run_repose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    _, out, _ = run_repose("serve", "--help")
    [container] = pod()["containers"]
    known = set(re.findall(r"--[a-z-]+|LT_[A-Z_]+", out))
    used = {argument for argument in (*compose()["command"], *container["args"]) if argument.startswith("-")}
    assert used <= known
    assert {*compose()["environment"], *(variable["name"] for variable in container["env"])} <= known


def test_compose() -> None:
    service, about = compose(), dict(instructions())
    assert (ROOT / "deploy" / service["build"] / "Dockerfile").exists()
    port = about["EXPOSE"]
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    [volume] = service["volumes"]
    [place] = json.loads(about["VOLUME"])
    assert volume.endswith(f":{place}:ro")
    assert all(argument.startswith(place) for argument in service["command"])
    assert (service["read_only"], service["tmpfs"]) == (True, [about["WORKDIR"]])
    assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN_SECONDS


def test_kubernetes() -> None:
    spec, about = pod(), dict(instructions())
    [container] = spec["containers"]
    [port] = container["ports"]
    assert port["containerPort"] == int(about["EXPOSE"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
        assert container[probe]["httpGet"]["path"].startswith("/health/")
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live", "a pod that loads or drains is alive"
    asleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["terminationGracePeriodSeconds"] > asleep + DRAIN_SECONDS
    user, group = about["USER"].split(":")
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) == (int(user), int(group))
    places = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(places.values()) == {volume["name"] for volume in spec["volumes"]}
    assert {*json.loads(about["VOLUME"]), about["WORKDIR"]} == set(places)
    assert container["securityContext"]["readOnlyRootFilesystem"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/repose/bin/repose", "/bin/true"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    if "Failed to" in done.stderr and unit.name not in done.stderr:
        pytest.skip("systemd-analyze cannot work here")
    assert unit.name not in done.stderr, done.stderr


def test_variables_of_libretranslate_stand_for_options(run_repose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    switches = {"LT_DISABLE_FILES_TRANSLATION", "LT_DISABLE_WEB_UI"}
    told = set(re.findall(r"`(LT_[A-Z_]+)`", page)) - {"LT_THREADS", "LT_API_KEYS"} - switches
    monkeypatch.setenv("COLUMNS", "250")
    _, out, _ = run_repose("serve", "--help")
    assert told == set(re.findall(r"LT_[A-Z_]+", out))
    monkeypatch.setenv("LT_CHAR_LIMIT", "-7")
    code, _, err = run_repose("serve", "nowhere")
    assert code != 0
    assert "char_limit = -7" in err
    code, _, err = run_repose("serve", "nowhere", "--char-limit", "9")
    assert "char_limit" not in err
    assert "not read" not in err


def test_variables_of_libretranslate_that_switch_something_off(
    run_repose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[ServeSettings] = []
    monkeypatch.setattr("repose.serving.server.serve", lambda settings, *_: given.append(settings))
    for value, on in (("true", False), ("1", False), ("false", True), ("", True)):
        monkeypatch.setenv("LT_DISABLE_FILES_TRANSLATION", value)
        monkeypatch.setenv("LT_DISABLE_WEB_UI", value)
        assert run_repose("serve", "somewhere")[0] == 0
        assert (given[-1].files, given[-1].page) == (on, on)
    monkeypatch.setenv("LT_DISABLE_WEB_UI", "true")
    assert run_repose("serve", "somewhere", "--page")[0] == 0
    assert given[-1].page, "the command line comes first"
    monkeypatch.setenv("LT_THREADS", "4")
    assert "not read: LT_THREADS (docs" in run_repose("serve", "somewhere")[2]
