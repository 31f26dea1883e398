"""docs/operations.md against a real API server: each command does what the page says of it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.advisor import ROOT, Advisor, redirections, wait_until_active
from tests.cluster.api_server import REGISTRATIONS, ApiServer, Outcome, api_server
from tests.cluster.authority import Authority
from tests.cluster.conftest import DATA
from tests.cluster.controllers import ending_namespaces, rolling_out
from tests.cluster.jobs import NEWEST, fresh_name, vsr_auto_job, vsr_job
from tests.cluster.runbook import SPAN, Operator, command, commands, section

Job = dict[str, Any]
DOWN = "The webhook is down and jobs that ask for a plan are refused"
OVERLAY = "k8s/overlays/plain-secret"
DEFINITION = "trainjobs.training.vsr.dev"
OPTIONS = ("runtime-reader/rbac.yaml", "priority/priorityclass.yaml")
SOON_SECONDS = 15.0


def checkout(server: ApiServer, advisor: Advisor, folder: Path) -> Path:
    """Our manifests as an operator has them; only where the webhooks are called is ours."""
    shutil.copytree(ROOT / "k8s", folder / "k8s")
    overlay = folder / OVERLAY / "kustomization.yaml"
    content = yaml.safe_load(overlay.read_text())
    content["patches"] = redirections(server, overlay.parent, advisor)
    overlay.write_text(yaml.safe_dump(content))
    return folder


@pytest.fixture(scope="module")
def operator(
    programs: Path, advisor: Advisor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """An API server of this module's own: its webhooks are broken, and taken away."""
    with api_server(programs) as server:
        server.kubectl("apply", "-f", DATA / f"kubeflow/crds/{NEWEST}.yaml")
        folder = checkout(server, advisor, tmp_path_factory.mktemp("checkout"))
        yield Operator(server=server, checkout=folder)


@pytest.fixture(scope="module")
def certificates(advisor: Advisor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the service serves, under the names that `install.sh DIRECTORY` reads."""
    folder = tmp_path_factory.mktemp("certificates")
    shutil.copy(advisor.authority.certificate, folder / "ca.crt")
    for name in ("tls.crt", "tls.key"):
        shutil.copy(advisor.folder / name, folder)
    return folder


@pytest.fixture
def installed(operator: Operator, certificates: Path) -> Operator:
    """The operator of a cluster in which all is well."""
    if not is_planned(rehearse(operator.server)):
        install(operator, certificates)
    return operator


@pytest.fixture
def namespace(operator: Operator) -> str:
    name = fresh_name("team")
    operator.server.kubectl("create", "namespace", name)
    return name


def install(operator: Operator, certificates: Path) -> None:
    """Runs the script that the page names, with the certificate that is served."""
    script = command("Install", f"{OVERLAY}/install.sh").replace("[DIRECTORY]", str(certificates))
    with rolling_out(operator.server):
        operator.run(script)
    wait_until_active(operator.server)


def rehearse(server: ApiServer) -> Outcome:
    """What a user would be told who creates a job that asks for a plan."""
    return server.create("default", vsr_auto_job(), "--dry-run=server", check=False)


def soon(server: ApiServer, told: Callable[[Outcome], bool]) -> Outcome:
    """The first answer that is as it should be: the API server learns of a change later."""
    deadline = time.monotonic() + SOON_SECONDS
    answer = rehearse(server)
    while not told(answer):
        assert time.monotonic() < deadline, answer
        time.sleep(0.2)
        answer = rehearse(server)
    return answer


def refused(answer: Outcome) -> bool:
    return 'failed calling webhook "plan.trainjobs.training.vsr.dev"' in answer.stderr


def is_planned(answer: Outcome) -> bool:
    return answer.code == 0 and "tpDegree" in answer.document["spec"]


def is_let_in(answer: Outcome) -> bool:
    return answer.code == 0 and "tpDegree" not in answer.document["spec"]


def hooks(server: ApiServer, kind: str = "mutating") -> list[Any]:
    path = f"{REGISTRATIONS}/{kind}webhookconfigurations/trainjob-advisor"
    found: list[Any] = server.http.get(path).raise_for_status().json()["webhooks"]
    return found


def policies(server: ApiServer) -> list[str]:
    return [hook["failurePolicy"] for hook in hooks(server)]


def clients(server: ApiServer) -> list[Any]:
    """Where all three webhooks are called, and who is believed there."""
    both = ("mutating", "validating")
    return [hook["clientConfig"] for kind in both for hook in hooks(server, kind)]


def image(operator: Operator) -> str:
    """The image that the Deployment runs."""
    return operator.server.kubectl(
        *("get", "deployment", "trainjob-advisor", "-n", "trainjob-advisor"),
        *("-o", "jsonpath={.spec.template.spec.containers[0].image}"),
    ).stdout


def test_what_goes_on_while_the_webhook_is_down(
    installed: Operator, advisor: Advisor, namespace: str
) -> None:
    """All that the section says of jobs before its first step."""
    server = installed.server
    running = server.create(namespace, vsr_auto_job()).document
    with advisor.down():
        assert refused(rehearse(server))
        stated = server.create(namespace, vsr_job(tpDegree=8, ppDegree=2)).document
        assert stated["spec"]["ppDegree"] == 2
        server.kubectl("label", DEFINITION, running["metadata"]["name"], "-n", namespace, "a=b")
        assert server.get(namespace, running)["spec"] == running["spec"]
        assert not installed.run(command(DOWN, "kubectl -n trainjob-advisor get")), "no pods here"


def test_letting_jobs_in_and_refusing_them_again(
    installed: Operator, advisor: Advisor, namespace: str
) -> None:
    """Steps 2 and 3: one policy changes; who was let in stays without a plan."""
    server = installed.server
    patch = command(DOWN, "kubectl patch")
    job = vsr_auto_job()
    trusted = clients(server)
    with advisor.down():
        assert policies(server) == ["Fail", "Ignore"]
        installed.run(patch)
        assert policies(server) == ["Ignore", "Ignore"]
        soon(server, is_let_in)
        server.kubectl("apply", "-n", namespace, "-f", "-", stdin=job)
    soon(server, is_planned)
    server.kubectl("apply", "-n", namespace, "-f", "-", stdin={**job, "metadata": {
        **job["metadata"], "labels": {"a": "b"}}})  # fmt: skip
    assert "tpDegree" not in server.get(namespace, job)["spec"]

    installed.run(patch.replace('"Ignore"', '"Fail"'))
    assert policies(server) == ["Fail", "Ignore"]
    installed.run(patch)
    installed.run(f"kubectl apply -k {OVERLAY}")
    assert policies(server) == ["Fail", "Ignore"]
    assert clients(server) == trusted
    with advisor.down():
        soon(server, refused)


def test_out_of_the_way_altogether_and_back(
    installed: Operator, advisor: Advisor, certificates: Path
) -> None:
    """The overlay alone brings no bundle; what the API server says then, and what mends it."""
    server = installed.server
    with advisor.down():
        installed.run(command(DOWN, "kubectl delete"))
        soon(server, is_let_in)
    installed.run(f"kubectl apply -k {OVERLAY}")
    (told,) = [text for text in SPAN.findall(section(DOWN)) if text.startswith("x509:")]
    assert told in soon(server, refused).stderr
    install(installed, certificates)
    assert is_planned(rehearse(server))


def test_a_bad_pair_is_logged_and_the_old_one_goes_on(
    installed: Operator, advisor: Advisor, tmp_path: Path
) -> None:
    good = (advisor.folder / "tls.key").read_bytes()
    before = advisor.log.read_text().count("certificate_rejected")
    try:
        stranger = Authority(tmp_path).server("stranger")
        shutil.copy(stranger.key, advisor.folder / "tls.key")
        deadline = time.monotonic() + SOON_SECONDS
        while advisor.log.read_text().count("certificate_rejected") == before:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert is_planned(rehearse(installed.server))
    finally:
        (advisor.folder / "tls.key").write_bytes(good)


def test_uninstalling_keeps_every_trainjob(
    installed: Operator, certificates: Path, namespace: str
) -> None:
    """Nothing of ours is left but the definition; installed again, all is as before."""
    server = installed.server
    options = [ROOT / "k8s/components" / name for name in OPTIONS]
    for file in options:
        server.kubectl("apply", "-f", file)
    job = vsr_auto_job()
    server.create(namespace, job)
    stored = server.get(namespace, job)
    warned = installed.run(f"kubectl delete --dry-run=client -k {OVERLAY}")
    assert f'"{DEFINITION}" deleted' in warned

    with ending_namespaces(server):
        for text in commands("Uninstall"):
            installed.run(text)
    assert server.get(namespace, job) == stored
    assert {
        kind for kind, name in everywhere(installed, *options) if exists(server, kind, name)
    } == {"CustomResourceDefinition"}
    soon(server, is_let_in)
    install(installed, certificates)
    assert server.get(namespace, job) == stored

    installed.run(command("Uninstall", "kubectl delete crd"))
    assert server.http.get(server.path(namespace, job)).status_code == 404


def everywhere(operator: Operator, *files: Path) -> set[tuple[str, str]]:
    """Kind and name of all that our manifests put into the cluster outside any namespace."""
    shipped = operator.run(f"kubectl kustomize {OVERLAY}")
    texts = [shipped, *(file.read_text() for file in files)]
    return {
        (item["kind"], item["metadata"]["name"])
        for text in texts
        for item in yaml.safe_load_all(text)
        if "namespace" not in item["metadata"]
    }


def exists(server: ApiServer, kind: str, name: str) -> bool:
    return bool(server.kubectl("get", kind, name, "--ignore-not-found", "-o", "name").stdout)


def test_upgrading_and_going_back(installed: Operator, namespace: str) -> None:
    """Only the Deployment changes: no job, no webhook, no authority."""
    server = installed.server
    base = installed.checkout / "k8s/base/kustomization.yaml"
    shipped = base.read_text()
    job = vsr_auto_job()
    server.create(namespace, job)
    before, first = (server.get(namespace, job), clients(server)), image(installed)
    steps = [
        step.replace("cert-manager", "plain-secret") for step in commands("Upgrade, and go back")
    ]
    try:
        with rolling_out(server):
            for step in [command("Install", "sed"), *steps]:
                installed.run(step)
            assert image(installed) == "registry.example/trainjob-advisor:0.2.0" != first
            assert (server.get(namespace, job), clients(server)) == before
            base.write_text(shipped)
            for step in steps[1:]:
                installed.run(step)
    finally:
        base.write_text(shipped)
    assert image(installed) == first
    assert (server.get(namespace, job), clients(server)) == before
    assert is_planned(rehearse(server))


def test_another_operators_definition_is_left_alone(installed: Operator) -> None:
    """With the component nothing of it changes; without, its schema is replaced."""
    server = installed.server
    definition = yaml.safe_load((ROOT / "k8s/base/crd/trainjobs.training.vsr.dev.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["theirField"] = {"type": "string"}
    server.kubectl("delete", "crd", DEFINITION)
    server.kubectl("create", "-f", "-", stdin=definition)
    installed.run(command("Install", "kubectl get crd"))
    overlay = installed.checkout / OVERLAY / "kustomization.yaml"
    shipped = overlay.read_text()
    try:
        line = command("Install", "components: [../../components/without")
        overlay.write_text(f"{shipped}{line}\n")
        installed.run(f"kubectl apply -k {OVERLAY}")
        assert has_their_field(server)
    finally:
        overlay.write_text(shipped)
    installed.run(f"kubectl apply -k {OVERLAY}")
    assert not has_their_field(server)


def has_their_field(server: ApiServer) -> bool:
    return "theirField" in server.kubectl("get", "crd", DEFINITION, "-o", "json").stdout


def test_the_api_server_takes_priority_and_strict_spreading(installed: Operator) -> None:
    """A pod of the Deployment with both lines of the page is admitted, with that priority."""
    overlay = installed.checkout / OVERLAY / "kustomization.yaml"
    shipped = overlay.read_text()
    names = [
        command("Install", f"components: [../../components/{name}")
        for name in ("priority", "strict-spreading")
    ]
    chosen = [each for name in names for each in yaml.safe_load(name)["components"]]
    try:
        overlay.write_text(f"{shipped}components: {json.dumps(chosen)}\n")
        installed.run(f"kubectl apply -k {OVERLAY}")
    finally:
        overlay.write_text(shipped)
    found = ("get", "deployment", "trainjob-advisor", "-n", "trainjob-advisor", "-o", "json")
    template = installed.server.kubectl(*found).document["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template["metadata"], "name": "one", "namespace": "trainjob-advisor"}
    create = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    admitted = installed.server.kubectl(*create, stdin=pod).document["spec"]
    assert admitted["priority"] == 1_000_000_000
    assert admitted["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"


def test_server_side_apply_leaves_the_bundle_alone(installed: Operator) -> None:
    """As Flux applies the manifests, which hold no bundle."""
    trusted = clients(installed.server)
    built = installed.run(f"kubectl kustomize {OVERLAY}")
    applied = (
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=kustomize-controller",
    )
    installed.server.kubectl(*applied, "-f", "-", stdin=list(yaml.safe_load_all(built)))
    assert clients(installed.server) == trusted
    assert all(client["caBundle"] for client in trusted)
