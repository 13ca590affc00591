"""Files for the deployment of the service: each can be read, and has what the service needs."""

from __future__ import annotations

import configparser
import ipaddress
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from pyasynq.cli.service_server import END_SECONDS
from pyasynq.gateway.configurations import ServiceFile, parse_service_file, read_service_file

FOLDER: Final = Path(__file__).parents[2] / "deploy"
CONTAINER: Final = (FOLDER / "Containerfile").read_text("utf-8")
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
MANIFESTS: Final[dict[str, dict[str, Any]]] = {
    one["kind"]: one for one in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text("utf-8"))
}
UNIT: Final = FOLDER / "pyasynq-service.service"
METADATA: Final = "169.254.169.254"
LABELS: Final = {"app": "pyasynq-service"}


class _Unit(configparser.RawConfigParser):
    optionxform = staticmethod(str)  # type: ignore[assignment]


def read_unit() -> _Unit:
    """Return the unit of systemd."""
    unit = _Unit()
    unit.read(UNIT, "utf-8")
    return unit


def time_to_end(file: ServiceFile) -> float:
    """Return how many seconds a service of this file may take to end."""
    return file.service.drain + END_SECONDS


def test_both_service_files_are_right() -> None:
    """That of the manifests is the other one, and needs keys, since others reach it."""
    file = read_service_file(FOLDER / "service.toml")
    text = MANIFESTS["ConfigMap"]["data"]["service.toml"]
    assert file == parse_service_file(tomllib.loads(text), folder=FOLDER)
    assert (True, False) == (file.service.keys, file.service.dashboard)
    assert file.service.is_public


def test_the_image_runs_without_rights() -> None:
    """As a user by number, so that Kubernetes can tell; with the command in brackets."""
    lines = CONTAINER.splitlines()
    assert "USER 65534:65534" in lines
    assert 'ENTRYPOINT ["pyasynq", "service", "/etc/pyasynq/service.toml"]' in lines
    assert max(at for at, line in enumerate(lines) if line.startswith("FROM")) < lines.index(
        "USER 65534:65534"
    )


def test_the_compose_file_has_a_service_without_rights_and_a_valkey() -> None:
    """With time to end, and settings that are on its disk."""
    service, valkey = COMPOSE["services"]["service"], COMPOSE["services"]["valkey"]
    assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    source = service["volumes"][0].split(":")[0]
    file = read_service_file(FOLDER / source)
    assert time_to_end(file) < int(service["stop_grace_period"].rstrip("s"))
    assert (True, ["ALL"], ["no-new-privileges:true"]) == (
        *(service["read_only"], service["cap_drop"], service["security_opt"]),
    )
    assert "noeviction" in valkey["command"]
    assert "redis://valkey:6379/0" == service["environment"]["PYASYNQ_REDIS_URL"]


def test_the_manifests_belong_together() -> None:
    """Labels, names, ports and probes."""
    pod = MANIFESTS["Deployment"]["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert LABELS == pod["metadata"]["labels"]
    selectors = [
        MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"],
        MANIFESTS["Service"]["spec"]["selector"],
        MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        MANIFESTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert [LABELS] * 4 == selectors
    assert ("/ready", "/live") == tuple(
        container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")
    )
    assert MANIFESTS["ConfigMap"]["metadata"]["name"] == pod["spec"]["volumes"][0]["configMap"]["name"]
    assert (
        MANIFESTS["Deployment"]["spec"]["replicas"] > MANIFESTS["PodDisruptionBudget"]["spec"]["minAvailable"]
    )
    file = read_service_file(FOLDER / "service.toml")
    [port] = container["ports"]
    assert file.service.port == port["containerPort"]


def test_the_pod_has_time_to_end_and_no_rights() -> None:
    """A probe fails before the address closes."""
    spec = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    file = read_service_file(FOLDER / "service.toml")
    assert time_to_end(file) < spec["terminationGracePeriodSeconds"]
    probe = container["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] < file.service.drain
    assert spec["securityContext"]["runAsNonRoot"]
    assert {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    } == container["securityContext"]


def test_the_metadata_of_the_cloud_is_out_of_reach() -> None:
    """For pods and for units."""
    [rule] = MANIFESTS["NetworkPolicy"]["spec"]["egress"]
    assert "Egress" in MANIFESTS["NetworkPolicy"]["spec"]["policyTypes"]
    reached = [
        block["ipBlock"]
        for block in rule["to"]
        if ipaddress.ip_address(METADATA) in ipaddress.ip_network(block["ipBlock"]["cidr"])
        and not any(
            ipaddress.ip_address(METADATA) in ipaddress.ip_network(one) for one in block["ipBlock"]["except"]
        )
    ]
    assert [] == reached
    denied = read_unit()["Service"]["IPAddressDeny"]
    assert ipaddress.ip_address(METADATA) in ipaddress.ip_network(denied)


def test_the_unit_has_no_rights_and_time_to_end() -> None:
    """It may make control groups of its own, for commands."""
    service = read_unit()["Service"]
    wanted = {"DynamicUser": "yes", "NoNewPrivileges": "yes", "Delegate": "yes", "ProtectSystem": "strict"}
    assert wanted == {name: service[name] for name in wanted}
    assert time_to_end(read_service_file(FOLDER / "service.toml")) < float(service["TimeoutStopSec"])
    assert "-HUP" in service["ExecReload"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="only with systemd")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """With a program that this machine has."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text("utf-8").replace("/opt/pyasynq/bin/pyasynq", sys.executable), "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert [] == [line for line in done.stderr.splitlines() if UNIT.name in line]
