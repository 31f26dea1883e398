"""Reviews that a process answers before it is ready: the first real one finds all of it warm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from app.admission.decide import Deps, mutate, validate
from app.admission.response import answer_of, response_bytes
from app.admission.review import parse_review
from app.catalog.loader import Catalog

NODES = 8
GPUS_PER_NODE = 8
NAME = "warm-up"
KINDS = {
    "training.vsr.dev": ("v1alpha1", "TrainJob", "trainjobs"),
    "trainer.kubeflow.org": ("v1alpha1", "TrainJob", "trainjobs"),
}


def answer_samples(catalog: Catalog, deps: Deps) -> int:
    """Answer a review of every kind at both doors; how many. Nothing is counted or logged."""
    answered = 0
    for body in samples(catalog):
        review = parse_review(body)
        for decide in (mutate, validate):
            response_bytes(review, answer_of(decide(review, deps)))
            answered += 1
    return answered


def samples(catalog: Catalog) -> Iterator[bytes]:
    """A job that asks for a plan and one that doesn't, of either API, created and changed."""
    model = next(iter(catalog.models))
    gpu, (label, value) = next(iter(catalog.gpu_labels.items()))
    sizes = {"numNodes": NODES, "gpusPerNode": GPUS_PER_NODE, "nodeSelector": {label: value}}
    checkpoint = {"enabled": True, "storagePath": "/" + NAME}
    degrees = {"tpDegree": 1, "ppDegree": 1}
    plain = {"model": model, "image": NAME, **sizes, **degrees, "checkpoint": checkpoint}
    for spec in ({**plain, "autoParallelism": True}, plain):
        job = {"metadata": {"name": NAME}, "spec": spec}
        yield review("training.vsr.dev", job)
        yield review("training.vsr.dev", job, old={**job, "spec": {**spec, "numNodes": 1}})
    prefix = "training.vsr.dev/"
    annotations = {prefix + "model": model, prefix + "gpu": gpu}
    metadata = {"name": NAME, "labels": {prefix + "plan": "auto"}, "annotations": annotations}
    limits = {"limits": {"nvidia.com/gpu": GPUS_PER_NODE}}
    trainer = {"numNodes": NODES, "resourcesPerNode": limits, "command": ["torchrun"]}
    job = {"metadata": metadata, "spec": {"runtimeRef": {"name": NAME}, "trainer": trainer}}
    yield review("trainer.kubeflow.org", job)
    yield review("trainer.kubeflow.org", job, old=job)


def review(group: str, job: dict[str, Any], *, old: dict[str, Any] | None = None) -> bytes:
    """The body of a review of `job`."""
    version, kind, resource = KINDS[group]
    request = {
        "uid": NAME,
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": resource},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": NAME,
        "object": job,
        "oldObject": old,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return orjson.dumps(body)
