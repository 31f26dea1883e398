"""The composition root: settings -> catalog -> planner -> doors. All state of a process is here."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from time import perf_counter
from typing import Any

import uvloop
from pydantic import ValidationError

from app.admission.decide import Deps as AdmissionDeps
from app.admission.decide import dispatch_table
from app.advisor.advise import Desk, answer_plan, fastest
from app.catalog.loader import Catalog, Unknown, load_catalog
from app.catalog.tables import CatalogError
from app.http.app import create_app, create_probe_app
from app.http.bodies import BodyLimits
from app.http.certificates import PairFiles
from app.http.deps import Deps
from app.http.runtimes import ReaderLimits, RuntimeReader, open_reader, prepare_with
from app.http.settings import Settings
from app.http.state import Health
from app.http.supervisor import Supervisor
from app.http.tls import LiveCertificate
from app.http.warming import answer_samples
from app.http.worker import Apps, Sockets, Worker, bind
from app.observability.known import KnownEnvironments, KnownIntents, KnownVerdicts, Remembered
from app.observability.logs import configure_logging, logger
from app.observability.metrics import Metrics
from app.observability.planning import CachedBest, CachedPlanner
from app.planner import form
from app.planner.request import Planner
from app.planner.search import plan
from app.trainjobs.collectives import Rules
from app.trainjobs.kubeflow import KnownRuntimes, KubeflowAdapter, NoRuntimes
from app.trainjobs.plan_json import plan_texts
from app.trainjobs.vsr import VsrAdapter

BAD_SETTINGS = 2
CANNOT_LISTEN = 1
JOBS_OF_A_REVIEW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One worker's objects."""

    deps: Deps
    certificate: LiveCertificate


def serve(overrides: Mapping[str, Any] | None = None) -> None:
    """Serve until SIGTERM, then exit; `overrides` win over the environment."""
    try:
        settings = Settings(**(overrides or {}))
    except ValidationError as problem:
        sys.stderr.write(f"{setting_errors(problem)}\n")
        sys.exit(BAD_SETTINGS)
    configure_logging(level=settings.log_level, form=settings.log_format)
    try:
        catalog = load_catalog(settings.catalog_dir)
    except CatalogError as problem:
        logger().error("bad_catalog", reason=str(problem))
        sys.exit(BAD_SETTINGS)
    sys.exit(run(settings, catalog))


def setting_errors(problem: ValidationError) -> str:
    """Every wrong setting, a line each, under the name its author wrote."""
    lines = (
        f"TRAINJOB_ADVISOR_{'_'.join(str(part) for part in error['loc']).upper()}: {error['msg']}"
        for error in problem.errors()
    )
    return "\n".join(lines)


def run(settings: Settings, catalog: Catalog) -> int:
    """Bind the ports and run the workers; the exit code."""
    try:
        sockets = bound_sockets(settings)
    except OSError as problem:
        hint = "TRAINJOB_ADVISOR_PORT and TRAINJOB_ADVISOR_HEALTH_PORT choose other ports"
        logger().error("cannot_listen", host=settings.host, reason=str(problem), hint=hint)
        return CANNOT_LISTEN
    logger().info(
        "starting",
        port=sockets[0].ports[0],
        health_ports=[each.ports[1] for each in sockets],
        workers=settings.workers,
        version=version("trainjob-advisor"),
        catalog_version=catalog.version,
    )

    def work(index: int) -> None:
        uvloop.run(serve_worker(settings, catalog, sockets[index], worker=index))

    if settings.workers > 1:
        return Supervisor(settings.workers, work).serve()
    work(0)
    return 0


def bound_sockets(settings: Settings) -> list[Sockets]:
    """The sockets of each worker: one HTTPS port for all, a plain port for each."""
    https = bind(settings.host, settings.port)
    return [
        Sockets(https=https, probes=bind(settings.host, health_port(settings, worker)))
        for worker in range(settings.workers)
    ]


def health_port(settings: Settings, worker: int) -> int:
    """The plain port of one worker; each has its own, so that no scrape mixes two processes."""
    return settings.health_port + worker if settings.health_port else 0


async def serve_worker(
    settings: Settings, catalog: Catalog, sockets: Sockets, *, worker: int
) -> None:
    """One worker process, from its first object to its last request."""
    service = compose(settings, catalog, worker=worker)
    apps = Apps(https=create_app(service.deps), probes=create_probe_app(service.deps))
    serving = Worker(settings, apps, service.deps.health, service.certificate)
    warming = asyncio.get_running_loop().call_soon(warm_up, service.deps)
    await serving.serve(sockets)
    warming.cancel()


def compose(settings: Settings, catalog: Catalog, *, worker: int = 0) -> Service:
    """Everything one worker needs, joined."""
    metrics = Metrics(
        version=version("trainjob-advisor"),
        planner=form(),
        catalog_version=catalog.version,
        worker=worker,
    )
    planner = CachedPlanner(plan, metrics, size=settings.plan_cache_size)
    reader = runtime_reader(settings)
    certificate = LiveCertificate(pair_files(settings), metrics)
    deps = Deps(
        admission=admission_deps(settings, catalog, planner, reader or NoRuntimes()),
        desk=Desk(
            catalog=catalog,
            planner=planner,
            clock=perf_counter,
            allowed_precisions=settings.allowed_precisions,
            best=CachedBest(fastest, size=settings.plan_cache_size),
        ),
        metrics=metrics,
        health=Health(served=lambda: certificate.served),
        limits=BodyLimits(body_bytes=settings.body_limit_bytes, seconds=settings.body_seconds),
        clock=perf_counter,
        version=version("trainjob-advisor"),
        prepare=prepare_with(reader) if reader else None,
    )
    return Service(deps=deps, certificate=certificate)


def admission_deps(
    settings: Settings, catalog: Catalog, planner: Planner, runtimes: KnownRuntimes
) -> AdmissionDeps:
    """What admission decides with."""
    rules = Rules.from_rows(catalog.collective_rules)
    size = settings.plan_cache_size
    texts = Remembered(plan_texts, size=size)
    resolve = KnownIntents(
        partial(catalog.resolve, allowed_precisions=settings.allowed_precisions), size=size
    )

    def gpu_name(label: str) -> str:
        found = catalog.gpu(label)
        return label if isinstance(found, Unknown) else found.gpu.name

    return AdmissionDeps(
        adapters=dispatch_table(
            VsrAdapter(texts=texts, rules=rules),
            KubeflowAdapter(
                runtimes=runtimes,
                gpu_name=gpu_name,
                texts=texts,
                reading=partial(Remembered, size=JOBS_OF_A_REVIEW),
            ),
        ),
        resolve=resolve,
        judge=KnownVerdicts(resolve, size=size),
        plan=planner,
        environment=KnownEnvironments(rules, size=size),
        gpu=catalog.gpu_of_labels,
        excluded_namespaces=frozenset(settings.excluded_namespaces),
        default_profile=settings.collective_profile,
        operator_values=settings.collective_values,
    )


def runtime_reader(settings: Settings) -> RuntimeReader | None:
    """What reads runtimes, if the operator wants it. Raises `NotInCluster`."""
    if not settings.read_runtimes:
        return None
    limits = ReaderLimits(
        budget=settings.runtime_budget_seconds, fresh=settings.runtime_fresh_seconds
    )
    return open_reader(os.environ, clock=perf_counter, limits=limits)


def pair_files(settings: Settings) -> PairFiles:
    """Where the certificate lies."""
    return PairFiles(
        certificate=settings.certificate_dir / settings.certificate_file,
        key=settings.certificate_dir / settings.key_file,
        client_authorities=settings.client_ca_file,
        server_name=settings.server_name,
    )


def warm_up(deps: Deps) -> None:
    """Plan and review once, so that nobody's first pays for what is lazy; then it may be ready."""
    catalog = deps.desk.catalog
    question = {"model": next(iter(catalog.models)), "gpu": next(iter(catalog.gpus)), "nodes": 8}
    answer_plan(question, deps.desk)
    answer_samples(catalog, deps.admission)
    deps.health.warm = True
