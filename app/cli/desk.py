"""What the offline commands work with: the catalog and the planner, without any server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from app.cli.question import Question
from app.cli.refuse import bad_input

if TYPE_CHECKING:
    from app.admission.decide import Decision, Deps
    from app.admission.review import Review
    from app.advisor.advise import Desk
    from app.catalog.loader import Catalog
    from app.cli.offline import Webhook
    from app.planner.hardware import Precision
    from app.trainjobs.collectives import Rules


def open_desk(question: Question) -> Desk:
    """The desk that answers a question with this catalog and these precisions."""
    from app.advisor.advise import Desk
    from app.planner.search import plan

    return Desk(
        catalog=open_catalog(question.catalog),
        planner=plan,
        clock=perf_counter,
        allowed_precisions=precisions(question.precision),
    )


def open_catalog(overlay: Path | None) -> Catalog:
    """The built-in catalog, with the entries of a directory laid over it."""
    from app.catalog.loader import load_catalog
    from app.catalog.tables import CatalogError

    try:
        return load_catalog(overlay)
    except CatalogError as problem:
        raise bad_input(str(problem), path="--catalog") from problem


def open_rules(catalog: Catalog) -> Rules:
    """The environment rules of a catalog."""
    from app.trainjobs.collectives import Rules

    return Rules.from_rows(catalog.collective_rules)


def open_webhooks(overlay: Path | None, precision: str | None) -> tuple[Webhook, Webhook]:
    """`/mutate` and `/validate` as functions, with this catalog and these precisions."""
    from app.admission.decide import Deps, dispatch_table, mutate, validate
    from app.admission.judge import judged
    from app.admission.response import respond
    from app.admission.review import MalformedReview, parse_review
    from app.planner.search import plan
    from app.trainjobs.kubeflow import KubeflowAdapter, NoRuntimes
    from app.trainjobs.vsr import VsrAdapter

    catalog = open_catalog(overlay)
    allowed = precisions(precision)
    resolve = partial(catalog.resolve, allowed_precisions=allowed)
    deps = Deps(
        adapters=dispatch_table(VsrAdapter(), KubeflowAdapter(runtimes=NoRuntimes())),
        resolve=resolve,
        judge=partial(judged, resolve=resolve),
        plan=plan,
        environment=open_rules(catalog).environment,
        gpu=catalog.gpu_of_labels,
    )

    def through(decide: Callable[[Review, Deps], Decision]) -> Webhook:
        def webhook(body: bytes) -> Mapping[str, Any]:
            try:
                review = parse_review(body)
            except MalformedReview as problem:
                raise bad_input(f"the AdmissionReview is malformed: {problem}") from problem
            return respond(review, decide(review, deps))

        return webhook

    return through(mutate), through(validate)


def precisions(text: str | None) -> tuple[Precision, ...]:
    """`"bf16,fp8"` as a tuple; without it what a request allows by default."""
    from app.planner.hardware import PRECISIONS

    if text is None:
        return ("bf16", "fp16")
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in PRECISIONS]
    if wrong:
        known = ", ".join(PRECISIONS)
        raise bad_input(f"`--precision` must be of {known}, not `{wrong[0]}`", path="--precision")
    return tuple(one for one in PRECISIONS if one in names)
