"""The reviews a server is loaded with, as whole HTTP requests, by kind."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from math import ceil
from typing import Any, Final

import orjson

from app.planner.architecture import ModelArchitecture

API: Final = ("training.vsr.dev", "v1alpha1")
GPU_LABEL: Final = ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")
WARM_MODEL: Final = "llama-3-8b"
SPREAD_NODES: Final = 64
MOST_NODES: Final = 2048
STATE_BYTES_PER_PARAMETER: Final = 18
"""Weights, gradients and AdamW's moments: how many nodes a model is asked for at least."""
NODE_BYTES: Final = 400e9
"""Of the 640 GB of a node of eight, so that most questions have a plan."""
LARGE_BYTES: Final = 1024 * 1024

SHARES: Final[Mapping[str, int]] = {
    "auto cold": 3,
    "auto warm": 6,
    "decided anew": 4,
    "defaults only": 4,
    "update": 2,
    "large object": 1,
}
"""How often each kind comes, of the sum."""
FIRST: Final = "defaults only"
"""The kind of the very first review: one that asks for no search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One request, ready to be written to a connection."""

    kind: str
    request: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request and when it is to be sent, in seconds from the start."""

    due: float
    shot: Shot


class Magazine:
    """Shots of every kind.

    Cold ones ask another question each time. Large ones are always the same review. The others are
    of another job each time, which shows in its image, its variables and where it checkpoints to;
    those decided anew have another time limit too, which is a field that rules are about.
    """

    def __init__(self, models: Mapping[str, ModelArchitecture], *, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - a load, not a secret
        self._numbers = count()
        self._cold = self._cold_specs(models)
        self._large = shot("large object", large(auto_spec()))

    def shot(self, kind: str) -> Shot:
        """The next request of a kind."""
        if kind == "large object":
            return self._large
        if kind == "update":
            return shot(kind, update(self._other(plain_spec())), door="validate")
        if kind == "auto cold":
            return shot(kind, review(self._other(next(self._cold))))
        if kind == "decided anew":
            return shot(kind, review(self._anew(auto_spec())))
        return shot(kind, review(self._other(plain_spec() if kind == FIRST else auto_spec())))

    def settling(self, rounds: int) -> list[Shot]:
        """Reviews that bring a server to where it stays: of every kind but the cold one."""
        return [self.shot(kind) for _ in range(rounds) for kind in SHARES if kind != "auto cold"]

    def arrivals(self, *, rate: float, seconds: float) -> Iterator[Arrival]:
        """A mix that comes at random, `rate` a second on average, whatever the server does."""
        kinds, weights = list(SHARES), list(SHARES.values())
        due = self._dice.expovariate(rate)
        while due < seconds:
            (kind,) = self._dice.choices(kinds, weights)
            yield Arrival(due=due, shot=self.shot(kind))
            due += self._dice.expovariate(rate)

    def jobs(self, number: int, *, questions: int, anew: bool = False) -> list[Shot]:
        """That many jobs, all different, that ask so many questions in turn.

        `anew` are those that have to be decided each by itself.
        """
        specs = [next(self._cold) for _ in range(questions)]
        kind, of_another = ("decided anew", self._anew) if anew else ("auto warm", self._other)
        return [shot(kind, review(of_another(specs[index % questions]))) for index in range(number)]

    def plain_jobs(self, number: int) -> list[Shot]:
        """That many jobs, all different, that ask for no plan."""
        return [self.shot(FIRST) for _ in range(number)]

    def _other(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The spec of another job."""
        number = next(self._numbers)
        return {
            **spec,
            "image": f"registry.example/train:{number}",
            "env": [{"name": "RUN", "value": f"{number}"}],
            "checkpoint": {**spec["checkpoint"], "storagePath": f"/checkpoints/{number}"},
        }

    def _anew(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The spec of another job, with a time limit that no other has."""
        return {**self._other(spec), "maxRuntime": f"{next(self._numbers) + 1}m"}

    def _cold_specs(self, models: Mapping[str, ModelArchitecture]) -> Iterator[dict[str, Any]]:
        names = list(models)
        for number in count():
            if number % len(names) == 0:
                self._dice.shuffle(names)
            model = models[names[number % len(names)]]
            least = ceil(model.params * STATE_BYTES_PER_PARAMETER / NODE_BYTES)
            nodes = min(MOST_NODES, least * self._dice.randint(1, SPREAD_NODES))
            yield auto_spec(model=model.name, nodes=nodes)


def auto_spec(*, model: str = WARM_MODEL, nodes: int = 8) -> dict[str, Any]:
    """A job that wants a plan."""
    return {**plain_spec(), "model": model, "numNodes": nodes, "autoParallelism": True}


def plain_spec() -> dict[str, Any]:
    """A job that does not, and leaves some defaults out."""
    return {
        "model": WARM_MODEL,
        "image": "registry.example/train:1",
        "numNodes": 8,
        "gpusPerNode": 8,
        "nodeSelector": dict([GPU_LABEL]),
        "command": ["torchrun", "train.py"],
        "checkpoint": {"enabled": True, "storagePath": "/checkpoints"},
    }


def review(spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """The creation of a job, as the API server asks about it."""
    group, version = API
    kind = {"group": group, "version": version, "kind": "TrainJob"}
    resource = {"group": group, "version": version, "resource": "trainjobs"}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-4000-8000-000000000000",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": "bench",
            "namespace": "bench",
            "operation": "CREATE",
            "userInfo": {"username": "bench", "groups": ["system:authenticated"]},
            "object": job(spec, **metadata),
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def update(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The change of such a job to half as many nodes."""
    changed = review({**spec, "numNodes": spec["numNodes"] // 2})
    changed["request"] |= {"operation": "UPDATE", "oldObject": job(spec)}
    return changed


def large(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The creation of a job of 1 MiB: much of `managedFields`, none of it ours."""
    fields: dict[str, Any] = {
        f"f:padding-{number:05}": {"f:name": {}, "f:value": {}} for number in range(400)
    }
    entry = {"manager": "bench", "operation": "Apply", "fieldsV1": {"f:spec": fields}}
    copies = LARGE_BYTES // len(orjson.dumps(entry)) + 1
    return review(spec, managedFields=[entry] * copies)


def job(spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """A TrainJob."""
    named = {"name": "bench", "namespace": "bench", **metadata}
    return {
        "apiVersion": "/".join(API),
        "kind": "TrainJob",
        "metadata": named,
        "spec": dict(spec),
    }


def shot(kind: str, document: Mapping[str, Any], *, door: str = "mutate") -> Shot:
    """The whole request that posts a review, as the API server writes it."""
    body = orjson.dumps(document)
    head = (
        f"POST /{door}?timeout=10s HTTP/1.1\r\nHost: localhost\r\n"
        "User-Agent: trainjob-advisor-bench\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return Shot(kind=kind, request=head.encode("ascii") + body)
