"""The OpenAPI description of bodies that other rooms read: JSON Schema, nothing executed.

Bounds and field names come from the tables that do the checking, so the two cannot drift apart.
"""

from __future__ import annotations

from typing import Any

from app.admission.review import API_VERSION, KIND, OPERATIONS
from app.advisor import cost as costed
from app.advisor import environment as shown
from app.advisor import requests as asked
from app.advisor.launch.launchers import LAUNCHERS
from app.planner.estimate import MAX_STAGES
from app.planner.framework import OFFLOADS, OPTIMIZERS, TASKS
from app.planner.hardware import MAX_GPUS_PER_NODE, MAX_NODES, PRECISIONS
from app.planner.layout import RECOMPUTES, SHARDINGS

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
TRUTH: Schema = {"type": "boolean"}


def whole(low: int, high: int, description: str = "") -> Schema:
    """An integer from `low` to `high`."""
    described = {"description": description} if description else {}
    return {"type": "integer", "minimum": low, "maximum": high} | described


def one_of(values: tuple[str, ...]) -> Schema:
    """One of a closed set of words."""
    return {"type": "string", "enum": list(values)}


def closed(properties: Schema, *required: str) -> Schema:
    """An object with these keys and no others."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": list(required)} if required else {})


def opened(properties: Schema, *required: str, description: str = "") -> Schema:
    """An object with at least these keys."""
    schema: Schema = {"type": "object", "properties": properties, "required": list(required)}
    return schema | ({"description": description} if description else {})


DEGREE = whole(1, asked.MAX_DEGREE)
BYTES = {"type": ["number", "null"], "description": "bytes; null when it cannot be said"}
LAYOUT_KEYS: Schema = {
    **dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "dp", "dp_shard"), DEGREE),
    "pp": whole(1, MAX_STAGES),
    "sharding": one_of(SHARDINGS),
    "sequence_parallel": TRUTH,
    "microbatch_size": whole(1, asked.MAX_SEQUENCES),
    "recompute": one_of(RECOMPUTES),
    "precision": one_of(PRECISIONS),
}
STAGE_LAYERS: Schema = {"type": "array", "items": whole(0, asked.MAX_DEGREE)}
WORKLOAD_KEYS: Schema = {
    "sequence_length": whole(1, asked.MAX_TOKENS, "tokens of one sequence"),
    "global_batch_size": whole(1, asked.MAX_SEQUENCES, "sequences of one optimizer step"),
    "task": one_of(TASKS),
    "lora_rank": whole(1, 65536),
    "optimizer": one_of(OPTIMIZERS),
    "offload": one_of(OFFLOADS),
}
PLAN_KEYS: Schema = {
    "model": {
        "description": "a catalog name, an architecture, or a Hugging Face config.json",
        "anyOf": [
            TEXT,
            closed(
                {
                    "name": TEXT,
                    "architecture": {"type": "object"},
                    "hf_config": {"type": "object"},
                }
            ),
        ],
    },
    "gpu": TEXT | {"description": "a catalog name or the value of a node label"},
    "nodes": whole(1, MAX_NODES),
    "gpus_per_node": whole(1, MAX_GPUS_PER_NODE),
    "fabric": {
        "description": "a catalog name, or one-way bytes per second for each GPU",
        "anyOf": [
            TEXT,
            closed(
                {"bytes_per_second_per_gpu": {"type": "number", "exclusiveMinimum": 0}},
                "bytes_per_second_per_gpu",
            ),
        ],
    },
    "instance_type": TEXT,
    "framework": TEXT,
    "workload": closed(WORKLOAD_KEYS),
    "pins": closed(LAYOUT_KEYS) | {"description": "layout fields the search must keep"},
}
PLAN_EXAMPLE: Schema = {
    "model": "llama-3-70b",
    "gpu": "NVIDIA-H100-80GB-HBM3",
    "nodes": 8,
    "gpus_per_node": 8,
    "fabric": "infiniband-400",
}
ESTIMATE_EXAMPLE: Schema = PLAN_EXAMPLE | {"layout": {"tp": 8, "pp": 1, "microbatch_size": 1}}
PLAN_REQUEST = closed(PLAN_KEYS, "model")
ESTIMATE_REQUEST = closed(
    PLAN_KEYS | {"layout": closed(LAYOUT_KEYS | {"stage_layers": STAGE_LAYERS})}, "model"
)

TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
MAP_OF_TEXTS: Schema = {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
LIST_OF_TEXTS: Schema = {"type": ["array", "null"], "items": {"type": "string"}}
ENVIRONMENT_REQUEST = closed(
    {key: schema for key, schema in ESTIMATE_REQUEST["properties"].items() if key != "model"}
    | {"model": PLAN_KEYS["model"] | {"description": "optional; as in a plan"}}
    | dict.fromkeys(shown.MAPS, MAP_OF_TEXTS)
    | dict.fromkeys(shown.LISTS, LIST_OF_TEXTS)
    | dict.fromkeys(shown.TEXTS, TEXT_OR_NULL)
)

LAUNCH_REQUEST = closed(
    ESTIMATE_REQUEST["properties"]
    | {"launcher": one_of(tuple(LAUNCHERS)) | {"description": "what starts the job"}},
    "model",
    "launcher",
)
POSITIVE: Schema = {"type": ["number", "null"], "exclusiveMinimum": 0}
COST_REQUEST = closed(
    {name: PLAN_KEYS[name] for name in costed.ASKED_FIELDS}
    | {
        "tokens": whole(1, costed.MAX_TOKENS, "tokens to train on"),
        "deadline_hours": POSITIVE | {"description": "hours the job may take"},
        "budget_usd": POSITIVE | {"description": "dollars the job may cost"},
        "max_gpus": whole(1, asked.MAX_DEGREE, "most GPUs of a job to try; 1024"),
        "spot_interruption_hours": POSITIVE
        | {"description": "hours between interruptions of one spot machine; 168"},
        "checkpoint_bytes_per_second_per_node": POSITIVE
        | {"description": "what one node writes to storage; 1e9"},
    },
    "model",
    "tokens",
)

LAYOUT = opened(LAYOUT_KEYS | {"stage_layers": STAGE_LAYERS}, "tp", "pp", "cp", "ep", "dp")
ESTIMATE_KEYS: Schema = {
    "legal": TRUTH,
    "violations": {
        "type": "array",
        "items": opened({"rule": TEXT, "field": {"type": "string"}, "message": TEXT}, "message"),
    },
    "fits": TRUTH,
    "gpu_memory_bytes": {"type": "integer"},
    "memory_bytes": {"type": "object", "additionalProperties": BYTES},
    "step_time_seconds": {"type": ["number", "null"]},
    "time_seconds": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
    "tokens_per_second_per_gpu": {"type": ["number", "null"]},
    "model_flop_per_second_per_gpu": {"type": ["number", "null"]},
    "mfu": {"type": ["number", "null"], "description": "share of the 16-bit peak, 0 to 1"},
    "num_microbatches": {"type": "integer"},
    "global_batch_size": {"type": "integer"},
    "assumptions": {"type": "array", "items": {"type": "string"}},
}
ESTIMATE = opened(ESTIMATE_KEYS, "legal", "violations", "fits", "memory_bytes", "time_seconds")
PLAN = opened(
    {
        "layout": LAYOUT,
        "estimate": ESTIMATE,
        "alternatives": {"type": "array", "items": {"type": "object"}},
        "search": {"type": "object"},
        "explanation": {"type": "string"},
        "infeasible": opened(
            {
                "reasons": {"type": "array", "items": {"type": "string"}},
                "nearest": {"type": ["object", "null"]},
            },
            "reasons",
            description="there instead of `layout` when nothing legal fits",
        ),
        "catalog_version": {"type": "string"},
    },
    "search",
    "catalog_version",
)
TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
NUMBER: Schema = {"type": ["number", "null"]}
REAL: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
SENTENCE: Schema = {"type": "string"}
DIFFERENCES: Schema = {
    "type": "array",
    "items": opened(
        {"term": TEXT, "words": TEXT}
        | {
            f"{one}_{unit}": {"type": "number"}
            for one in ("asked", "plan", "difference")
            for unit in ("seconds", "bytes")
        },
        "term",
        "words",
    ),
}
EXPLANATION = opened(
    {
        "verdict": TEXT,
        "works": TRUTH | {"description": "legal, and within what a plan may use of the card"},
        "layout": LAYOUT,
        "estimate": ESTIMATE,
        "plan": {"type": ["object", "null"], "description": "`layout` and `estimate` of the plan"},
        "infeasible": {"type": ["object", "null"], "description": "why there is no plan"},
        "short_by_bytes": {"type": "number"},
        "changed_fields": {
            "type": "array",
            "items": opened({"field": TEXT, "asked": {}, "plan": {}}, "field", "asked", "plan"),
        },
        "time": DIFFERENCES,
        "memory": DIFFERENCES,
        "remedies": {
            "type": "array",
            "description": "single changes that make it legal and fit, nearest first",
            "items": opened(
                {
                    "field": TEXT,
                    "from": {},
                    "to": {},
                    "says": TEXT,
                    "layout": LAYOUT,
                    "estimate": ESTIMATE,
                },
                "field",
                "from",
                "to",
                "says",
                "layout",
                "estimate",
            ),
        },
        "catalog_version": TEXT,
    },
    "verdict",
    "works",
    "layout",
    "estimate",
    "plan",
    "changed_fields",
    "time",
    "memory",
    "remedies",
    "catalog_version",
)
LAUNCH = opened(
    {
        "launcher": one_of(tuple(LAUNCHERS)),
        "release": TEXT,
        "source": TEXT,
        "summary": TEXT,
        "files": {
            "type": "array",
            "items": opened(
                {"name": TEXT, "language": TEXT, "content": TEXT}, "name", "language", "content"
            ),
        },
        "command": TEXTS,
        "notes": TEXTS,
        "warnings": TEXTS,
        "strategy": opened(
            {"rule_of_thumb": TEXT, "chosen": TEXT, "agrees": TRUTH, "reason": {"type": "string"}},
            "rule_of_thumb",
            "chosen",
            "agrees",
            "reason",
        ),
        "tips": {
            "type": "array",
            "items": opened(
                {"binds": TEXT, "share": NUMBER, "advice": TEXT}, "binds", "share", "advice"
            ),
        },
        "layout": LAYOUT,
        "estimate": ESTIMATE,
        "infeasible": {
            "type": "object",
            "description": "there instead of `files` when nothing fits that it can start",
        },
        "catalog_version": TEXT,
    },
    "launcher",
    "catalog_version",
)
OFFER = opened(
    {
        **dict.fromkeys(("instance_type", "provider", "gpu", "fabric", "plan"), TEXT),
        **dict.fromkeys(("nodes", "gpus"), WHOLE),
        **dict.fromkeys(
            (
                "hours",
                "usd",
                "usd_per_billion_tokens",
                "tokens_per_second",
                "mfu",
                "step_time_seconds",
            ),
            REAL,
        ),
        "spot_usd": NUMBER,
        "energy_kwh_upper_bound": NUMBER | {"description": "the GPUs' board limit all the time"},
        "price": opened(
            {
                "on_demand_usd_per_node_hour": {"type": "number"},
                "spot_usd_per_node_hour": NUMBER,
                **dict.fromkeys(("region", "date", "source"), SENTENCE),
            },
            "on_demand_usd_per_node_hour",
            "region",
            "date",
            "source",
        ),
        "layout": LAYOUT,
    },
    "instance_type",
    "nodes",
    "hours",
    "usd",
    "price",
    "layout",
)
OFFER_OR_NONE: Schema = {"anyOf": [OFFER, {"type": "null"}]}
COST = opened(
    {
        "recommended": OFFER_OR_NONE,
        "reason": {"type": "string"},
        "cheapest_meeting_deadline": OFFER_OR_NONE,
        "pareto": {"type": "array", "items": OFFER, "description": "fastest first"},
        "offers": {"type": "array", "items": OFFER, "description": "cheapest first"},
        "scaling": {
            "type": "array",
            "description": "the recommended instance type at each size",
            "items": opened(
                {
                    **dict.fromkeys(("nodes", "gpus"), WHOLE),
                    **dict.fromkeys(("tokens_per_second", "efficiency", "hours", "usd"), REAL),
                    "speedup_over_previous": NUMBER,
                    "pays": TRUTH,
                },
                "nodes",
                "tokens_per_second",
                "efficiency",
                "pays",
            ),
        },
        "scaling_advice": {"type": "string"},
        "checkpoint": {
            "type": ["object", "null"],
            "description": "`inputs`, intervals on demand and on spot (Young, Daly), `advice`",
        },
        "cannot": {"type": "array", "items": {"type": "object"}},
        "without_price": TEXTS,
        "tokens": {"type": "integer"},
        "deadline_hours": NUMBER,
        "budget_usd": NUMBER,
        "assumptions": TEXTS,
        "catalog_version": TEXT,
    },
    "recommended",
    "reason",
    "pareto",
    "offers",
    "scaling",
    "checkpoint",
    "catalog_version",
)
ERROR = opened(
    {
        "error": opened(
            {
                "code": TEXT,
                "message": TEXT,
                "path": {"type": "string", "description": "the field at fault, if one is"},
                "details": {
                    "type": "array",
                    "items": opened({"path": {"type": "string"}, "message": TEXT}, "message"),
                },
            },
            "code",
            "message",
            "path",
        )
    },
    "error",
)
# What a review may say in any form is described, not typed: only what is needed is insisted on.
GROUP_VERSION: Schema = {"group": {"description": "API group, empty for core"}, "version": TEXT}
REVIEW_REQUEST = opened(
    {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": KIND},
        "request": opened(
            {
                "uid": TEXT,
                "kind": opened(GROUP_VERSION | {"kind": TEXT}, "version", "kind"),
                "resource": opened({"resource": TEXT}, "resource"),
                "operation": one_of(OPERATIONS),
                "object": {"type": ["object", "null"]},
                "oldObject": {"type": ["object", "null"]},
                "dryRun": {"description": "true for a rehearsal; answered alike"},
            },
            "uid",
            "kind",
            "resource",
            "operation",
        ),
    },
    "apiVersion",
    "kind",
    "request",
)
REVIEW_RESPONSE = opened(
    {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": KIND},
        "response": opened(
            {
                "uid": TEXT,
                "allowed": TRUTH,
                "patchType": {"const": "JSONPatch"},
                "patch": {"type": "string", "description": "RFC 6902 operations in base64"},
                "status": {"type": "object"},
                "warnings": {"type": "array", "items": {"type": "string"}},
            },
            "uid",
            "allowed",
        ),
    },
    "apiVersion",
    "kind",
    "response",
)
COMPONENTS: Schema = {
    "PlanRequest": PLAN_REQUEST,
    "EstimateRequest": ESTIMATE_REQUEST,
    "EnvironmentRequest": ENVIRONMENT_REQUEST,
    "LaunchRequest": LAUNCH_REQUEST,
    "CostRequest": COST_REQUEST,
    "Explanation": EXPLANATION,
    "Launch": LAUNCH,
    "Cost": COST,
    "Plan": PLAN,
    "Estimate": ESTIMATE,
    "Error": ERROR,
    "AdmissionReviewRequest": REVIEW_REQUEST,
    "AdmissionReviewResponse": REVIEW_RESPONSE,
}
ERRORS_OF_BODIES = ("400", "408", "413", "415", "422", "500", "503")


def reference(name: str) -> Schema:
    """A pointer to one of `COMPONENTS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def json_content(schema: Schema, example: Schema | None = None) -> Schema:
    """A JSON body of this shape."""
    return {"application/json": {"schema": schema} | ({"example": example} if example else {})}


def errors(*statuses: str) -> Schema:
    """Refusals with these statuses."""
    answer = {"description": "why there is no answer", "content": json_content(reference("Error"))}
    return dict.fromkeys(statuses, answer)


def operation(
    summary: str,
    *,
    answer: Schema,
    request: Schema | None = None,
    example: Schema | None = None,
    failures: tuple[str, ...] = ("500",),
) -> Schema:
    """One operation as OpenAPI says it."""
    described: Schema = {
        "summary": summary,
        "responses": {
            "200": {"description": "the answer", "content": json_content(answer)},
            **errors(*failures),
        },
    }
    if request is not None:
        described["requestBody"] = {"required": True, "content": json_content(request, example)}
    return described


TIMEOUT: Schema = {
    "name": "timeout",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "how long the caller waits, as the API server sends it: `10s`",
}
REVIEW_PATHS: dict[str, Schema] = {
    f"/{name}": {
        "post": {"tags": ["webhook"], "operationId": name, "parameters": [TIMEOUT]}
        | operation(
            summary,
            request=reference("AdmissionReviewRequest"),
            answer=reference("AdmissionReviewResponse"),
            failures=(*ERRORS_OF_BODIES, "504"),
        )
    }
    for name, summary in {
        "mutate": "Defaults, plan and environment of a TrainJob, as a patch.",
        "validate": "Whether a TrainJob may be stored; every reason if it may not.",
    }.items()
}
PLAN_OPERATION = operation(
    "The fastest layout that fits, and why.",
    request=reference("PlanRequest"),
    answer=reference("Plan"),
    example=PLAN_EXAMPLE,
    failures=ERRORS_OF_BODIES,
)
ESTIMATE_OPERATION = operation(
    "What one layout would need and do.",
    request=reference("EstimateRequest"),
    answer=reference("Estimate"),
    example=ESTIMATE_EXAMPLE,
    failures=ERRORS_OF_BODIES,
)
EXPLAIN_OPERATION = operation(
    "The plan against a layout of yours, term by term, and what would mend it.",
    request=reference("EstimateRequest"),
    answer=reference("Explanation"),
    example=ESTIMATE_EXAMPLE,
    failures=ERRORS_OF_BODIES,
)
LAUNCH_OPERATION = operation(
    "Files and the command that start a plan or a layout, with tips.",
    request=reference("LaunchRequest"),
    answer=reference("Launch"),
    example=PLAN_EXAMPLE | {"launcher": "torchtitan"},
    failures=ERRORS_OF_BODIES,
)
COST_OPERATION = operation(
    "Time and money of a number of tokens on every machine with a price.",
    request=reference("CostRequest"),
    answer=reference("Cost"),
    example={"model": "llama-3-8b", "tokens": 300_000_000_000, "deadline_hours": 200},
    failures=ERRORS_OF_BODIES,
)
COST_OPERATION["responses"]["200"]["content"]["application/x-ndjson"] = {
    "schema": {
        "type": "string",
        "description": "for those who accept it: lines `{progress: {done, total, name}}`, then "
        "one `{answer: {...}}` with the object above, or `{error: {...}}`",
    }
}
CANDIDATES_OPERATION = operation(
    "A sample of all layouts, memory beside speed.",
    request=reference("PlanRequest"),
    answer=opened({"candidates": {"type": "array", "items": {"type": "object"}}}, "candidates"),
    example=PLAN_EXAMPLE,
    failures=ERRORS_OF_BODIES,
)
ENVIRONMENT_OPERATION = operation(
    "The collective environment of a job, each variable with its reason.",
    request=reference("EnvironmentRequest"),
    answer=opened({"environment": {"type": "array", "items": {"type": "object"}}}, "environment"),
    example=PLAN_EXAMPLE,
    failures=ERRORS_OF_BODIES,
)
CHOICES_OPERATION = operation(
    "Every name and word that a request takes.", answer={"type": "object"}
)
SEARCH: Schema = {
    "name": "search",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "keep those whose name holds this word",
}
MODELS_OPERATION, GPUS_OPERATION = (
    operation(
        summary,
        answer=opened({kind: {"type": "array", "items": {"type": "object"}}}, kind),
        failures=("404", "500"),
    )
    | {"parameters": [SEARCH]}
    for summary, kind in (
        ("The models of the catalog.", "models"),
        ("The GPU types of the catalog.", "gpus"),
    )
)
HEALTH_OPERATION = operation(
    "Whether this process works.", answer={"type": "object"}, failures=("503",)
)
READY_OPERATION = operation(
    "Whether this process takes requests.", answer={"type": "object"}, failures=("503",)
)
