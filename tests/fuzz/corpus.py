"""Real reviews, and strategies that damage them."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.kubeflow.reviews import review_of as kubeflow_review
from tests.vsr.reviews import review_of as vsr_review

ROOT = Path(__file__).parents[2]
Document = dict[str, Any]


@cache
def reviews() -> tuple[Document, ...]:
    """Recorded requests, and the creation of every example, in the order of their files."""
    recorded = [*ROOT.glob("tests/golden/*/*/request.json"), *ROOT.glob("examples/reviews/*.json")]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(recorded)]
    for folder, review_of in (("trainjobs", vsr_review), ("kubeflow", kubeflow_review)):
        for path in sorted(ROOT.glob(f"examples/{folder}/*.yaml")):
            manifests = yaml.safe_load_all(path.read_text(encoding="utf-8"))
            found += [review_of(each) for each in manifests if each["kind"] == "TrainJob"]
    return tuple(found)


scalars = st.sampled_from(
    [
        None, True, False, 0, 1, -1, 2, 3, 7, 8, 16, 4096, 2**31, 2**53 + 1, 2**63, 2**64 - 1,
        -(2**63), 0.5, -0.0, 1e-320, 1e308, "", " ", "0", "1", "8", "-1", "1e9", "NaN", "true",
        "9" * 40, "٣", "auto", "bf16", "fp8", "llama-3-8b", "../../etc/passwd", "a/b~1c~0d", "\x00",
        "\n", "\u202e", "é" * 300, "x" * 5000, "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu", "{}",
        "1Ki", "100000Ti", '{"num_layers": 1e9}',
    ]
) | st.integers(-(2**63), 2**64 - 1)  # fmt: skip
hostile = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "value", "valueFrom", "spec", "enabled", "", "x/y~z"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


def nodes(document: Any) -> list[tuple[Any, Any]]:
    """Every place in `document`: its container, and the key or index there."""
    found: list[tuple[Any, Any]] = []
    pairs = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in pairs:
        found.append((document, key))
        found += nodes(value)
    return found


@st.composite
def damaged(draw: st.DrawFn) -> Document:
    """A real review after one to four changes; most keep a head that can be read."""
    document = copy.deepcopy(draw(st.sampled_from(reviews())))
    request = document["request"]
    for _ in range(draw(st.integers(1, 4))):
        where = draw(st.sampled_from(["object", "object", "object", "oldObject", "any"]))
        places = nodes(document if where == "any" else request.get(where))
        if not places:
            continue
        container, key = places[draw(st.integers(0, len(places) - 1))]
        _damage(draw, container, key, document)
    return document


def _damage(draw: st.DrawFn, container: Any, key: Any, document: Document) -> None:
    way = draw(st.sampled_from(["replace", "replace", "replace", "delete", "wrap", "move", "more"]))
    if way == "replace":
        container[key] = draw(hostile)
    elif way == "delete":
        del container[key]
    elif way == "wrap":
        container[key] = [container[key]]
    elif way == "move":
        others = nodes(document)
        source, name = others[draw(st.integers(0, len(others) - 1))]
        container[key] = copy.deepcopy(source[name])
    elif isinstance(container, list):
        container += copy.deepcopy(container)
    else:
        container[draw(st.sampled_from(["env", "x", "a/b", "~", ""]))] = draw(hostile)


@st.composite
def heads(draw: st.DrawFn) -> Document:
    """A real review whose `request` fields are whatever."""
    document = copy.deepcopy(draw(st.sampled_from(reviews())))
    request = document["request"]
    for name in draw(st.lists(st.sampled_from(sorted(request)), max_size=4, unique=True)):
        request[name] = draw(hostile)
    operation = st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"]) | hostile
    request["operation"] = draw(operation)
    request["subResource"] = draw(st.sampled_from(["", "status", "scale"]) | hostile)
    if draw(st.booleans()):
        request["oldObject"] = copy.deepcopy(draw(st.sampled_from(reviews()))["request"]["object"])
    return document


@st.composite
def broken_bytes(draw: st.DrawFn) -> bytes:
    """The bytes of a real review, cut, flipped or stuffed with what JSON must not hold."""
    body = json.dumps(draw(st.sampled_from(reviews()))).encode()
    at = draw(st.integers(0, len(body)))
    stuffing = st.sampled_from(
        [
            b"NaN", b"Infinity", b"-Infinity", b"1" * 400, b"1e999", b"\xff\xfe", b"\xc3", b"\x00",
            b'"\\ud800"', b"[" * 2000, b'{"a":' * 2000, b'"request":{},', b'"uid":"x",',
            b"\xef\xbb\xbf", b"}", b",", b"//", b'"spec":null,',
        ]
    ) | st.binary(max_size=8)  # fmt: skip
    way = draw(st.sampled_from(["cut", "insert", "overwrite", "value", "value", "twice"]))
    if way == "cut":
        return body[:at]
    if way == "twice":
        return body + body[at:]
    inserted = draw(stuffing)
    if way == "insert":
        return body[:at] + inserted + body[at:]
    if way == "value":
        # At the start of a value, so that numbers and names that JSON lacks are read as such.
        start = body.find(b": ", at) + 2
        return body[:start] + inserted + b', "z": ' + body[start:]
    return body[:at] + inserted + body[at + len(inserted) :]
