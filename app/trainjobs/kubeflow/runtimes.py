"""What a (Cluster)TrainingRuntime of Kubeflow Trainer adds to the jobs that refer to it.

A TrainJob may leave nodes, GPUs, node selectors and environment to its runtime, which the review
does not carry. Reading it is I/O and happens above this room; adapters ask a `KnownRuntimes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.trainjobs.document import count_at, environment_at, mapping_at
from app.trainjobs.kubeflow.reading import mappings, text

TRAINER_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
DEFAULT_TARGET = "node"
"""The replicated job and the container that train, in every runtime Trainer ships."""

DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")

RUNTIME_PLURALS: Mapping[str, str] = {
    "ClusterTrainingRuntime": "clustertrainingruntimes",
    "TrainingRuntime": "trainingruntimes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeReference:
    """Which runtime a job names. `namespace` is "" for a ClusterTrainingRuntime."""

    kind: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """The API server's path of the object."""
        root = "/apis/trainer.kubeflow.org/v1alpha1"
        inside = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}{inside}/{RUNTIME_PLURALS[self.kind]}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFacts:
    """What a runtime says about the pods that train. `nodes` `None` is not said there.

    `targets` are the replicated jobs that job overrides may aim at to reach those pods.
    """

    nodes: int | None = None
    targets: frozenset[str] = frozenset({DEFAULT_TARGET})
    pod_template: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class KnownRuntimes(Protocol):
    """Where an adapter looks a runtime up.

    A Protocol, because reading the API server belongs to the doors: they fetch before a review is
    decided, and the decision itself only looks at what is there. It never waits.
    """

    def known(self, reference: RuntimeReference) -> RuntimeFacts | None:
        """The runtime's facts, or `None` when it was not read."""


class NoRuntimes:
    """The stateless service: no runtime is ever known."""

    def known(self, reference: RuntimeReference) -> RuntimeFacts | None:  # noqa: ARG002 - Protocol
        """Nothing."""
        return None


def runtime_reference(job: Mapping[str, Any]) -> RuntimeReference | None:
    """The runtime `job` refers to, `None` if it names none we could read.

    Names are checked, since they become a path: nothing but DNS names is ever asked for.
    """
    ref = mapping_at(job, "spec", "runtimeRef")
    kind = text(ref.get("kind")) or "ClusterTrainingRuntime"
    name = text(ref.get("name"))
    namespace = text(mapping_at(job, "metadata").get("namespace"))
    if kind == "ClusterTrainingRuntime":
        namespace = ""
    if kind not in RUNTIME_PLURALS or not DNS_NAME.fullmatch(name):
        return None
    if kind == "TrainingRuntime" and not DNS_NAME.fullmatch(namespace):
        return None
    return RuntimeReference(kind=kind, namespace=namespace, name=name)


def runtime_facts(document: Mapping[str, Any]) -> RuntimeFacts:
    """What `document`, a (Cluster)TrainingRuntime, says about the pods that train.

    The GPUs sit in the replicated job called `node`; a runtime without one is read at the job that
    is labelled as the trainer step.
    """
    jobs = mappings(mapping_at(document, "spec", "template", "spec").get("replicatedJobs"))
    trainers = [job for job in jobs if _is_trainer_step(job)]
    chosen = next((job for job in jobs if job.get("name") == DEFAULT_TARGET), None)
    chosen = chosen or next(iter(trainers), {})
    pods = mapping_at(chosen, "template", "spec", "template")
    container = _trainer_container(pods)
    return RuntimeFacts(
        nodes=count_at(document, "spec", "mlPolicy", "numNodes"),
        targets=frozenset({DEFAULT_TARGET} | {text(job.get("name")) for job in trainers}),
        pod_template=pods,
        resources=mapping_at(container, "resources"),
        environment=environment_at(container, "env"),
    )


def _is_trainer_step(job: Mapping[str, Any]) -> bool:
    labels = mapping_at(job, "template", "metadata", "labels")
    return labels.get(TRAINER_STEP_LABEL) == "trainer"


def _trainer_container(pods: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = mappings(mapping_at(pods, "spec").get("containers"))
    named = (item for item in containers if item.get("name") == DEFAULT_TARGET)
    return next(named, next(iter(containers), {}))
