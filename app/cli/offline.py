"""Admission without an API server: what it would send, in the order it would send it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonpatch
import yaml

from app.cli.refuse import bad_input

Document = Mapping[str, Any]
Webhook = Callable[[bytes], Mapping[str, Any]]
"""An AdmissionReview as bytes in, the answering AdmissionReview out."""

BARE_UID = "00000000-0000-0000-0000-000000000000"
"""The uid of a review that nobody sent: the same each time, so that output can be compared."""


class KubernetesLoader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: JSON types only, so a date stays the text it was."""


KubernetesLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """What both webhooks said about one object. `patched` is the object as it would be stored."""

    name: str
    gvk: str
    operation: str
    uid: str
    allowed: bool
    status: Mapping[str, Any] | None
    warnings: tuple[str, ...]
    patch: tuple[Mapping[str, Any], ...]
    patched: Document

    @property
    def body(self) -> dict[str, Any]:
        """The answer as `review --json` prints it, the patch decoded."""
        response: dict[str, Any] = {"uid": self.uid, "allowed": self.allowed}
        if self.status is not None:
            response["status"] = dict(self.status)
        if self.warnings:
            response["warnings"] = list(self.warnings)
        return {"response": response | {"patch": [dict(one) for one in self.patch]}}


def documents(text: str) -> Iterator[Document]:
    """The objects of a JSON text or of a YAML stream; the items of a List one by one."""
    for document in _parsed(text):
        if document is None:
            continue
        if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
            raise bad_input("every document must be a Kubernetes object with a `kind`")
        items = document.get("items")
        if document["kind"].endswith("List") and isinstance(items, list):
            yield from (item for item in items if isinstance(item, Mapping))
        else:
            yield document


def _parsed(text: str) -> Sequence[Any]:
    try:
        if text.lstrip().startswith(("{", "[")):
            return [json.loads(text)]
        loaded = list(yaml.load_all(text, Loader=KubernetesLoader))
        # Through JSON once, as kubectl does: keys become text, and what JSON lacks is refused.
        plain: list[Any] = json.loads(json.dumps(loaded))
    except (TypeError, ValueError, yaml.YAMLError, RecursionError) as problem:
        what = " ".join(str(problem).split()) or "it is nested too deeply"
        raise bad_input(f"FILE must be JSON or YAML: {what}") from problem
    return plain


def as_review(document: Document) -> dict[str, Any]:
    """An AdmissionReview as it is; any other object inside the review that would create it."""
    if document["kind"] == "AdmissionReview":
        return dict(document)
    group, _, version = str(document.get("apiVersion", "")).rpartition("/")
    metadata = document.get("metadata")
    named: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    request = {
        "uid": BARE_UID,
        "kind": {"group": group, "version": version, "kind": document["kind"]},
        "resource": {
            "group": group,
            "version": version,
            "resource": f"{document['kind'].lower()}s",
        },
        "name": named.get("name", ""),
        "namespace": named.get("namespace", "default"),
        "operation": "CREATE",
        "userInfo": {},
        "object": _with_namespace(document, named),
        "oldObject": None,
        "dryRun": True,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _with_namespace(document: Document, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The object as admission sees it: the API server has put in the namespace of the request."""
    if "namespace" in metadata or not metadata:
        return dict(document)
    return {**document, "metadata": {**metadata, "namespace": "default"}}


def review(document: Document, *, mutate: Webhook, validate: Webhook) -> Reviewed:
    """Mutate, apply the patch, validate what results."""
    asked = as_review(document)
    first = _response(mutate, asked)
    patch = _decoded(first)
    request = _request(asked)
    patched = _patched(request.get("object"), patch)
    warnings = list(first.get("warnings", ()))
    answer = first
    if first.get("allowed") is True:
        answer = _response(validate, {**asked, "request": {**request, "object": patched}})
        warnings += [one for one in answer.get("warnings", ()) if one not in warnings]
    return Reviewed(
        name=_name(request),
        gvk=_gvk(request),
        operation=str(request.get("operation", "")),
        uid=str(first.get("uid", "")),
        allowed=answer.get("allowed") is True,
        status=answer.get("status"),
        warnings=tuple(warnings),
        patch=tuple(patch),
        patched=patched,
    )


def _response(webhook: Webhook, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    response: Mapping[str, Any] = webhook(json.dumps(asked).encode())["response"]
    return response


def _request(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    request: Mapping[str, Any] = asked["request"]
    return request


def _decoded(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    patch = response.get("patch")
    operations: list[Mapping[str, Any]] = json.loads(base64.b64decode(patch)) if patch else []
    return operations


def _patched(document: Any, patch: Sequence[Mapping[str, Any]]) -> Document:
    patched: Document = jsonpatch.apply_patch(document or {}, list(patch))
    return patched


def _name(request: Mapping[str, Any]) -> str:
    document = request.get("object")
    metadata = document.get("metadata") if isinstance(document, Mapping) else None
    named = metadata if isinstance(metadata, Mapping) else {}
    generated = f"{named['generateName']}*" if "generateName" in named else ""
    name = request.get("name") or named.get("name") or generated or "?"
    return f"{request.get('namespace') or 'default'}/{name}"


def _gvk(request: Mapping[str, Any]) -> str:
    kind = request["kind"]
    return f"{kind.get('group', '')}/{kind['version']} {kind['kind']}"
