"""What a question may be made of: the answer of `GET /v1/choices`, for forms and completions."""

from __future__ import annotations

from app.advisor.advise import Desk
from app.advisor.answers import Json
from app.advisor.launch.launchers import LAUNCHERS
from app.planner.framework import OFFLOADS, OPTIMIZERS, TASKS
from app.planner.hardware import PRECISIONS
from app.planner.layout import RECOMPUTES, SHARDINGS


def choices_body(desk: Desk) -> Json:
    """Every name and word that a request takes, and what decides which go together."""
    catalog = desk.catalog
    return {
        "models": [
            {
                "name": name,
                "params": entry.model.params,
                "moe": entry.model.moe is not None,
                "sequence_length": entry.sequence_length,
            }
            for name, entry in catalog.model_entries.items()
        ],
        "gpus": [
            {
                "name": name,
                "memory_bytes": entry.gpu.memory_bytes,
                "nvlink_domain_size": entry.gpu.nvlink_domain_size,
                "default_fabric": entry.default_fabric,
                "node_label": catalog.gpu_labels.get(name),
            }
            for name, entry in catalog.gpu_entries.items()
        ],
        "instance_types": [
            {
                "name": name,
                "gpu": instance.gpu,
                "gpus_per_node": instance.gpus_per_node,
                "provider": instance.provider,
            }
            for name, instance in catalog.instances.items()
        ],
        "fabrics": list(catalog.fabrics),
        "frameworks": list(catalog.frameworks),
        "launchers": [
            {"name": one.name, "release": one.release, "frameworks": list(one.profiles)}
            for one in LAUNCHERS.values()
        ],
        "tasks": list(TASKS),
        "optimizers": list(OPTIMIZERS),
        "offloads": list(OFFLOADS),
        "shardings": list(SHARDINGS),
        "recomputes": list(RECOMPUTES),
        "precisions": list(PRECISIONS),
        "allowed_precisions": list(desk.allowed_precisions),
        "catalog_version": catalog.version,
    }
