"""What is left of a large review without what nobody reads: most of one is `managedFields`.

Parsing them makes an object of every map in them, which is nearly all that a large review costs.
They are skipped here as bytes, and what is read goes on as it was sent: text, numbers and errors
are those of the parser that small reviews have. In what is skipped, bytes that are no UTF-8 and
numbers too large for a float are not noticed.
"""

from __future__ import annotations

from typing import TypedDict

from msgspec import MsgspecError, Raw
from msgspec.json import Decoder, encode


class Metadata(TypedDict, total=False):
    """A job's `metadata` without `UNREAD`, but with its name: a review has none of its own.

    Source of the fields: kubernetes/apimachinery, ObjectMeta.
    """

    name: Raw
    generateName: Raw
    namespace: Raw
    labels: Raw
    annotations: Raw
    ownerReferences: Raw
    finalizers: Raw
    deletionTimestamp: Raw
    deletionGracePeriodSeconds: Raw


class Job(TypedDict, total=False):
    """A TrainJob."""

    apiVersion: Raw
    kind: Raw
    metadata: Metadata
    spec: Raw
    status: Raw


class Request(TypedDict, total=False):
    """`request`, as far as `Review` has it."""

    uid: Raw
    kind: Raw
    resource: Raw
    subResource: Raw
    operation: Raw
    namespace: Raw
    name: Raw
    userInfo: Raw
    dryRun: Raw
    object: Job | None
    oldObject: Job | None


class Whole(TypedDict, total=False):
    """An AdmissionReview."""

    apiVersion: Raw
    kind: Raw
    request: Request


_DECODER = Decoder(Whole)


def read_part(body: bytes) -> bytes:
    """The review in `body` without what nobody reads; `body` itself where it has another shape."""
    try:
        return encode(_DECODER.decode(body))
    except (MsgspecError, RecursionError):
        return body
