"""The manifests as shipped: what they register, and what little they allow."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

K8S = Path(__file__).parents[3] / "k8s"
GROUPS = {"training.vsr.dev", "trainer.kubeflow.org"}
NAME = "trainjob-advisor"


def load(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((K8S / path).read_text()))


def one(path: str, kind: str) -> dict[str, Any]:
    return next(item for item in load(path) if item["kind"] == kind)


WEBHOOKS = {
    webhook["name"].partition(".")[0]: webhook
    for configuration in load("base/webhooks.yaml")
    for webhook in configuration["webhooks"]
}
every_webhook = pytest.mark.parametrize("webhook", WEBHOOKS.values(), ids=WEBHOOKS)


@every_webhook
def test_only_trainjobs_are_sent_to_us(webhook: dict[str, Any]) -> None:
    for rule in webhook["rules"]:
        assert set(rule["apiGroups"]) <= GROUPS
        assert rule["apiVersions"] == ["v1alpha1"]
        assert rule["resources"] == ["trainjobs"]
        assert set(rule["operations"]) <= {"CREATE", "UPDATE"}
        assert rule["scope"] == "Namespaced"


@every_webhook
def test_infrastructure_never_waits_for_us(webhook: dict[str, Any]) -> None:
    (expression,) = webhook["namespaceSelector"]["matchExpressions"]
    assert expression["operator"] == "NotIn"
    assert {"kube-system", NAME} <= set(expression["values"])
    assert webhook["sideEffects"] == "None"
    assert webhook["timeoutSeconds"] <= 5
    assert webhook["admissionReviewVersions"] == ["v1"]
    conditions = [each["expression"] for each in webhook["matchConditions"]]
    assert "!has(object.metadata.deletionTimestamp)" in conditions


def test_only_jobs_that_asked_for_a_plan_can_be_held_up() -> None:
    policies = {name: webhook["failurePolicy"] for name, webhook in WEBHOOKS.items()}
    assert policies == {"plan": "Fail", "default": "Ignore", "validate": "Ignore"}
    conditions = {each["name"]: each["expression"] for each in WEBHOOKS["plan"]["matchConditions"]}
    assert "autoParallelism" in conditions["asks-for-a-plan"]
    assert conditions["new-or-its-env-changed"].startswith("request.operation == 'CREATE'")


def test_an_update_is_sent_to_be_mended_under_one_condition() -> None:
    """Both registrations ask the same: a queue's writes, which leave env alone, meet neither."""
    for name in ("plan", "default"):
        conditions = [each["name"] for each in WEBHOOKS[name]["matchConditions"]]
        assert conditions[1] == "new-or-its-env-changed"
    first, second = (WEBHOOKS[name]["matchConditions"][1] for name in ("plan", "default"))
    assert first == second


def test_our_configuration_comes_after_kueues() -> None:
    """Webhooks are called in the order of their configurations' names."""
    assert one("base/webhooks.yaml", "MutatingWebhookConfiguration")["metadata"]["name"] > "kueue-z"


def test_the_service_is_where_the_webhooks_call() -> None:
    service = one("base/service.yaml", "Service")
    for webhook in WEBHOOKS.values():
        called = webhook["clientConfig"]["service"]
        assert (called["name"], called["namespace"]) == (service["metadata"]["name"], NAME)
        assert called["port"] in {port["port"] for port in service["spec"]["ports"]}


def test_the_pod_may_do_nothing_but_serve() -> None:
    pod = one("base/deployment.yaml", "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    labels = load("base/namespace.yaml")[0]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert not any("subPath" in mount for mount in container["volumeMounts"])
    assert all(mount["readOnly"] for mount in container["volumeMounts"])


def test_the_pod_stops_within_its_grace() -> None:
    """preStop, draining and what is in flight fit into it."""
    pod = one("base/deployment.yaml", "Deployment")["spec"]["template"]["spec"]
    slept = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert slept + 5 + 20 < pod["terminationGracePeriodSeconds"]


def test_no_sidecar_takes_the_port() -> None:
    metadata = one("base/deployment.yaml", "Deployment")["spec"]["template"]["metadata"]
    assert metadata["annotations"]["sidecar.istio.io/inject"] == "false"


def test_two_replicas_and_one_always_there() -> None:
    assert one("base/availability.yaml", "HorizontalPodAutoscaler")["spec"]["minReplicas"] == 2
    assert one("base/availability.yaml", "PodDisruptionBudget")["spec"]["minAvailable"] == 1


def test_the_network_lets_in_what_is_needed_and_nothing_out() -> None:
    policy = one("base/availability.yaml", "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    assert {p["port"] for rule in policy["ingress"] for p in rule["ports"]} == {8443, 8081}
    assert "from" not in policy["ingress"][0], "no address of all: plugins read it differently"
    assert policy["ingress"][1]["from"]


needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")


def built(folder: Path, *components: str) -> list[dict[str, Any]]:
    """What `kubectl kustomize` makes of the base with components."""
    shutil.copytree(K8S, folder / "k8s")
    names = [f"k8s/components/{name}" for name in components]
    (folder / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["k8s/base"], "components": names})
    )
    done = subprocess.run(
        ["kubectl", "kustomize", folder], check=True, capture_output=True, text=True
    )
    return list(yaml.safe_load_all(done.stdout))


def of_kind(items: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(item for item in items if item["kind"] == kind)


@needs_kubectl
def test_the_port_can_be_kept_to_the_control_plane(tmp_path: Path) -> None:
    """The component replaces nothing but the senders of the first rule."""
    policy = of_kind(built(tmp_path, "control-plane-only"), "NetworkPolicy")["spec"]
    shipped = one("base/availability.yaml", "NetworkPolicy")["spec"]
    assert policy["ingress"][0].pop("from") == [{"ipBlock": {"cidr": "192.0.2.1/32"}}]
    assert policy["ingress"] == shipped["ingress"]


@needs_kubectl
def test_the_definition_can_be_left_out(tmp_path: Path) -> None:
    """The component takes away the definition and nothing else."""
    whole, without = (
        Counter(item["kind"] for item in built(tmp_path / str(len(names)), *names))
        for names in ((), ("without-definition",))
    )
    assert whole - without == {"CustomResourceDefinition": 1}
    assert not without - whole


@needs_kubectl
def test_the_pods_can_have_priority_over_jobs(tmp_path: Path) -> None:
    """A class of our own, which every namespace may use."""
    items = built(tmp_path, "priority")
    pod = of_kind(items, "Deployment")["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == of_kind(items, "PriorityClass")["metadata"]["name"]


@needs_kubectl
def test_spreading_can_be_made_a_must(tmp_path: Path) -> None:
    pod = of_kind(built(tmp_path, "strict-spreading"), "Deployment")["spec"]["template"]["spec"]
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == (
        "kubernetes.io/hostname",
        "DoNotSchedule",
    )
    assert spread["labelSelector"]["matchLabels"] == {"app.kubernetes.io/name": NAME}


def test_the_runbook_names_the_webhook_that_refuses() -> None:
    """The commands of docs/operations.md: the first webhook is the one that fails closed."""
    hooks = one("base/webhooks.yaml", "MutatingWebhookConfiguration")["webhooks"]
    assert [each["failurePolicy"] for each in hooks] == ["Fail", "Ignore"]
    runbook = (K8S.parent / "docs/operations.md").read_text()
    assert f'"path": "/webhooks/0/name", "value": "{hooks[0]["name"]}"' in runbook


def test_a_leaf_is_renewed_under_an_authority_that_stays() -> None:
    """The bundle in the webhook configuration does not change when the leaf does."""
    items = load("overlays/cert-manager/certificate.yaml")
    leaf, authority = (
        next(i["spec"] for i in items if (i["kind"], i["metadata"]["name"]) == ("Certificate", n))
        for n in (NAME, f"{NAME}-authority")
    )
    issuer = next(i["spec"] for i in items if i["metadata"]["name"] == leaf["issuerRef"]["name"]
                  and i["kind"] == "Issuer")  # fmt: skip
    assert issuer == {"ca": {"secretName": authority["secretName"]}}
    assert leaf["dnsNames"][0] == f"{NAME}.{NAME}.svc"
    assert leaf["privateKey"] == {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"}
    hours = [int(leaf[key].removesuffix("h")) for key in ("duration", "renewBefore")]
    assert hours == [90 * 24, 30 * 24]
    assert authority["isCA"] is True
    pod = one("base/deployment.yaml", "Deployment")["spec"]["template"]["spec"]
    assert pod["volumes"][0]["secret"]["secretName"] == leaf["secretName"]


def test_the_definition_is_closed_where_users_write() -> None:
    """A typo in a spec is an error; no field is required that existing jobs lack."""
    (definition,) = load("base/crd/trainjobs.training.vsr.dev.yaml")
    (version,) = definition["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(spec["required"]) == {"model", "image", "numNodes", "gpusPerNode", "checkpoint"}
    assert "x-kubernetes-preserve-unknown-fields" not in yaml.safe_dump(spec)


@needs_kubectl
@pytest.mark.parametrize(
    "path", ["base", "overlays/cert-manager", "overlays/plain-secret"], ids=lambda p: p
)
def test_every_kustomization_builds(path: str) -> None:
    shipped = subprocess.run(
        ["kubectl", "kustomize", K8S / path], check=True, capture_output=True, text=True
    ).stdout
    kinds = {item["kind"] for item in yaml.safe_load_all(shipped)}
    assert {"Deployment", "MutatingWebhookConfiguration", "CustomResourceDefinition"} <= kinds
