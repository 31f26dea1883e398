"""AdmissionReview v1 as it arrives: bytes -> `Review`, or `MalformedReview` with what is wrong.

Source of the shape: kubernetes/api admission/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NotRequired, TypedDict

import orjson

from app.admission.large import read_part
from app.trainjobs.adapter import Job, JobReview
from app.trainjobs.document import is_object, mapping_at, value_at

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")
WITH_OBJECT: Final = frozenset({"CREATE", "UPDATE"})
SHOWN_CHARACTERS: Final = 60
LARGE_BYTES: Final = 2048
"""Of a body from which leaving out what nobody reads takes less than parsing it."""


class GroupVersionKind(TypedDict):
    """`request.kind`."""

    group: str
    version: str
    kind: str


class GroupVersionResource(TypedDict):
    """`request.resource`."""

    group: str
    version: str
    resource: str


class UserInfo(TypedDict, total=False):
    """`request.userInfo`."""

    username: str
    uid: str
    groups: list[str]
    extra: dict[str, list[str]]


class AdmissionRequest(TypedDict):
    """`request`."""

    uid: str
    kind: GroupVersionKind
    resource: GroupVersionResource
    subResource: NotRequired[str]
    requestKind: NotRequired[GroupVersionKind]
    requestResource: NotRequired[GroupVersionResource]
    requestSubResource: NotRequired[str]
    name: NotRequired[str]
    namespace: NotRequired[str]
    operation: str
    userInfo: NotRequired[UserInfo]
    object: dict[str, Any] | None
    oldObject: NotRequired[dict[str, Any] | None]
    dryRun: NotRequired[bool]
    options: NotRequired[dict[str, Any] | None]


class AdmissionReview(TypedDict):
    """The body the apiserver posts."""

    apiVersion: str
    kind: str
    request: AdmissionRequest


class MalformedReview(ValueError):  # noqa: N818 - the name other rooms rely on
    """The body is not an AdmissionReview we can read: the request's fault, HTTP 400."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One admission request. `name` may be a `generateName` prefix, "" if there is neither."""

    uid: str
    group: str
    version: str
    kind: str
    resource: str
    subresource: str
    operation: str
    namespace: str
    name: str
    dry_run: bool
    job: Job
    old: Job | None

    @property
    def gvk(self) -> str:
        """`group/version/Kind`, for the log."""
        return f"{self.group}/{self.version}/{self.kind}"

    @property
    def for_adapter(self) -> JobReview:
        """What an adapter may look at."""
        return JobReview(
            operation=self.operation,
            job=self.job,
            old=self.old,
            namespace=self.namespace,
            subresource=self.subresource,
        )


UNREAD: Final = frozenset(
    {
        "name",
        "generateName",
        "uid",
        "creationTimestamp",
        "generation",
        "resourceVersion",
        "managedFields",
        "selfLink",
    }
)
"""Metadata of a job that no decision depends on."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's copy of the whole job, its name included; no decision depends on what it says."""


def whole(review: JobReview) -> tuple[Any, ...]:
    """Both jobs: where no adapter says what of them it leaves unread."""
    return (review.job, review.old)


def deciding(review: Review, shown: Callable[[JobReview], tuple[Any, ...]] = whole) -> bytes:
    """All of a review that its decision may depend on: reviews with equal ones are decided alike.

    `shown` leaves out of the jobs what their adapter does not read. Who asks counts for nothing.
    Keys in another order make another one. Empty when it can't be written: orjson reads deeper
    nesting than it writes.
    """
    read = JobReview(
        operation=review.operation,
        job=_read(review.job),
        old=_read(review.old) if review.old is not None else None,
        namespace=review.namespace,
        subresource=review.subresource,
    )
    asked = (review.group, review.version, review.kind, review.resource, review.subresource)
    try:
        return orjson.dumps((asked, review.operation, review.namespace, *shown(read)))
    except TypeError:
        return b""


def _read(job: Job) -> Job:
    """The job without what nobody reads. That there are annotations stays visible."""
    metadata = job.get("metadata")
    if not is_object(metadata):
        return job
    read = {key: value for key, value in metadata.items() if key not in UNREAD}
    annotations = read.get("annotations")
    if is_object(annotations) and LAST_APPLIED in annotations:
        read["annotations"] = {**annotations, LAST_APPLIED: ""}
    return {**job, "metadata": read}


def parse_review(body: bytes) -> Review:
    """The review in `body`. Raises `MalformedReview`."""
    try:
        document = orjson.loads(read_part(body) if len(body) > LARGE_BYTES else body)
    except orjson.JSONDecodeError as error:
        msg = f"the body must be JSON: {error}"
        raise MalformedReview(msg) from None
    return read_review(document)


def read_review(document: Any) -> Review:
    """The review in a parsed document. Raises `MalformedReview`."""
    if not is_object(document):
        msg = f"the body must be an {KIND} object, not {_shown(document)}"
        raise MalformedReview(msg)
    _check_version(document)
    request = _object(document, "request")
    operation = _text(request, "operation", "request.operation")
    if operation not in OPERATIONS:
        known = ", ".join(OPERATIONS)
        msg = f"`request.operation` must be one of {known}, not {_shown(operation)}"
        raise MalformedReview(msg)
    kind, resource = _object(request, "kind"), _object(request, "resource")
    job = _optional_object(request, "object")
    if job is None and operation in WITH_OBJECT:
        msg = f"`request.object` must be an object when `request.operation` is {operation}"
        raise MalformedReview(msg)
    return Review(
        uid=_text(request, "uid", "request.uid"),
        group=_optional_text(kind, "group"),
        version=_text(kind, "version", "request.kind.version"),
        kind=_text(kind, "kind", "request.kind.kind"),
        resource=_text(resource, "resource", "request.resource.resource"),
        subresource=_optional_text(request, "subResource"),
        operation=operation,
        namespace=_optional_text(request, "namespace"),
        name=_name(request),
        dry_run=request.get("dryRun") is True,
        job=job if job is not None else {},
        old=_optional_object(request, "oldObject"),
    )


def _check_version(document: Mapping[str, Any]) -> None:
    version, kind = document.get("apiVersion"), document.get("kind")
    if kind == KIND and version == API_VERSION:
        return
    neither = kind is None and version is None
    found = "and names neither" if neither else f"not {_shown(kind)} of {_shown(version)}"
    msg = (
        f"the body must be {KIND} of {API_VERSION}, {found}; "
        "set `admissionReviewVersions: [v1]` in the webhook configuration"
    )
    raise MalformedReview(msg)


def _name(request: Mapping[str, Any]) -> str:
    return (
        _optional_text(request, "name")
        or _optional_text(mapping_at(request, "object", "metadata"), "name")
        or _optional_text(mapping_at(request, "object", "metadata"), "generateName")
    )


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = parent.get(key)
    if is_object(found):
        return found
    path = key if key == "request" else f"request.{key}"
    msg = f"`{path}` must be an object, not {_shown(found)}"
    raise MalformedReview(msg)


def _optional_object(request: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    return None if request.get(key) is None else _object(request, key)


def _text(parent: Mapping[str, Any], key: str, path: str) -> str:
    found = parent.get(key)
    if isinstance(found, str) and found:
        return found
    msg = f"`{path}` must be a non-empty string, not {_shown(found)}"
    raise MalformedReview(msg)


def _optional_text(parent: Mapping[str, Any], key: str) -> str:
    found = value_at(parent, key)
    return found if isinstance(found, str) else ""


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping | list):
        return "an object" if isinstance(value, Mapping) else "a list"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
