"""What went wrong in a training log: known symptoms, each with its evidence, cause and change.

The log is read once, line by line, in constant memory; a line is cut before it is matched, so that
neither a log without newlines nor a hostile line costs much. The patterns are a table: a symptom is
recognised by its first matching line and counted after that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from app.advisor.answers import Json
from app.advisor.launch.setup import Setup
from app.advisor.why import Remedy, changed, works
from app.planner.estimate import estimate
from app.planner.explain import gib, layout_words, short_seconds

MAX_LINE_BYTES: Final = 65_536
MATCHED_CHARACTERS: Final = 2_000
EVIDENCE_CHARACTERS: Final = 240
GIB: Final = 2**30
MIB: Final = 2**20
LOW_USE_PERCENT: Final = 30.0
LOW_USE_LINES: Final = 5
UNITS: Final = {"gib": GIB, "mib": MIB, "gb": GIB, "mb": MIB, "kib": 1024, "bytes": 1}

SECRET: Final = re.compile(
    r"(?i)\b([\w.-]*(?:token|secret|passw(?:or)?d|api[_-]?key|credential|authorization)[\w.-]*"
    r"[\"']?\s*[=:]\s*)(?:bearer\s+)?[\"']?[^\s\"',;]+|\b(?:hf_|ghp_|sk-|AKIA)[A-Za-z0-9_-]{8,}"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """A fault, how a line shows it, and what it means. `change` is what to do without numbers."""

    name: str
    severity: str
    pattern: re.Pattern[str]
    cause: str
    change: str
    source: str
    least: int = 1


def _lines(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


SYMPTOMS: Final = (
    Symptom(
        name="cuda_out_of_memory",
        severity="error",
        pattern=_lines(
            r"(?:CUDA|HIP) out of memory", r"OutOfMemoryError", r"cudaErrorMemoryAllocation"
        ),
        cause="a GPU's memory is full",
        change="take a smaller microbatch, more recomputation, or more sharding",
        source="PyTorch c10/cuda/CUDACachingAllocator.cpp",
    ),
    Symptom(
        name="host_out_of_memory",
        severity="error",
        pattern=_lines(r"OOMKilled", r"oom-kill", r"Out of memory: Killed process"),
        cause="the host's memory, or the container's limit, is full",
        change="raise the pod's memory limit, use fewer loader workers, or offload less",
        source="Linux mm/oom_kill.c; Kubernetes container status reasons",
    ),
    Symptom(
        name="nccl_timeout",
        severity="error",
        pattern=_lines(
            r"Watchdog caught collective operation timeout",
            r"collective operation timeout",
            r"ProcessGroupNCCL.{0,80}(?:timed out|timeout)",
            r"NCCL.{0,40}watchdog.{0,60}(?:timeout|terminated)",
        ),
        cause="ranks waited for one that did not come: it died, is slow, or called another "
        "collective; the first rank with another error is the one to look at",
        change="read the earliest error of all ranks; set TORCH_FR_BUFFER_SIZE (before PyTorch 2.9 "
        "TORCH_NCCL_TRACE_BUFFER_SIZE) to record the collectives; if loading or checkpointing is "
        "what is slow, raise the timeout",
        source="PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
    Symptom(
        name="nccl_over_tcp",
        severity="warning",
        pattern=_lines(
            r"NCCL INFO.{0,80}Using network Socket",
            r"via NET/Socket",
            r"NET/Socket : Using",
            r"NET/(?:IB|OFI) : No device found",
            r"No plugin found.{0,60}using internal",
        ),
        cause="NCCL talks over TCP sockets: it found no InfiniBand, RoCE or EFA device, so that "
        "collectives between nodes are many times slower than planned",
        change="give the pod the RDMA devices and the network plugin; `trainjob-advisor env` lists "
        "what this fabric needs",
        source="NVIDIA/nccl src/transport/net_socket.cc and net_ib.cc",
    ),
    Symptom(
        name="infiniband_error",
        severity="error",
        pattern=_lines(
            r"NET/IB.{0,80}(?:error|Got completion|async event|Port.{0,20}down)",
            r"ibv_(?:reg_mr|create_qp|modify_qp|poll_cq)\w*.{0,40}failed",
            r"IBV_WC_(?:RETRY_EXC|RNR_RETRY|WR_FLUSH|LOC_PROT)\w*",
            r"got completion.{0,60}error 12",
        ),
        cause="the InfiniBand or RoCE network lost a connection: link down, retries exhausted, or "
        "memory that could not be registered",
        change="check the link counters of the node, `ulimit -l unlimited` in the container, GID "
        "index and PKey; drain the node if it repeats",
        source="NVIDIA/nccl src/transport/net_ib.cc; rdma-core libibverbs verbs.h",
    ),
    Symptom(
        name="nccl_error",
        severity="error",
        pattern=_lines(
            r"ncclSystemError", r"ncclUnhandledCudaError", r"ncclRemoteError", r"ncclInvalidUsage"
        ),
        cause="a collective failed; NCCL_DEBUG=INFO names the call that did",
        change="run again with NCCL_DEBUG=INFO and give that output to this command",
        source="NVIDIA/nccl src/nccl.h.in, ncclResult_t",
    ),
    Symptom(
        name="loss_not_finite",
        severity="error",
        pattern=_lines(
            r"\b(?:lm[ _])?loss\b[\"']?\s*(?:is|[:=])?\s*[\"']?[-+]?(?:nan|inf(?:inity)?)\b",
            r"found NaN in (?:local )?(?:forward )?loss",
            r"(?:nan|inf) (?:loss|detected)",
        ),
        cause="the loss is not a number: learning rate, data, or a format too narrow",
        change="go back to the last good checkpoint, skip the batch, lower the learning rate or "
        "clip gradients; in fp16 take bf16, in fp8 keep first and last layers in bf16",
        source="Megatron-LM pretrain_gpt.py; Hugging Face Trainer log format",
    ),
    Symptom(
        name="gradient_overflow",
        severity="warning",
        pattern=_lines(
            r"OVERFLOW!.{0,60}(?:skipping|loss scale)",
            r"Gradient overflow",
            r"reducing (?:the )?loss scale",
            r"(?:Minimum|Current) loss scale.{0,60}(?:minimum|reached)",
            r"number of nan iterations:\s+[1-9]",
            r"number of skipped iterations:\s+[1-9]",
        ),
        cause="fp16 gradients overflow and steps are skipped; now and then it is how loss scaling "
        "works, again and again the training does not move",
        change="take bf16 where the GPU has it; else lower the learning rate and start with a "
        "smaller loss scale",
        source="DeepSpeed runtime/fp16/loss_scaler.py; Megatron-LM training log",
        least=3,
    ),
    Symptom(
        name="preempted",
        severity="info",
        pattern=_lines(
            r"Received (?:Signals\.)?SIGTERM",
            r"Received 15 death signal",
            r"\bPreempt(?:ed|ion|ing)\b",
            r"\bEvicted\b",
            r"TerminationByKubelet|spot.{0,20}interruption|instance-action",
            r"SignalException.{0,60}signal: 15",
        ),
        cause="the machine or the pod was taken away (preemption, eviction, spot interruption), no "
        "fault of the job",
        change="restart from the last checkpoint; `trainjob-advisor cost` says how often to write "
        "one on such machines",
        source="PyTorch torch/distributed/elastic/agent; Kubernetes pod disruption reasons",
    ),
    Symptom(
        name="world_size_mismatch",
        severity="error",
        pattern=_lines(
            r"world[ _-]?size.{0,80}(?:not divisible|is not|must|mismatch|does not|!=)",
            r"Invalid parallel dims",
            r"(?:ranks?|processes) (?:have|has) (?:a )?different",
            r"(?:Detected mismatch between collectives|mismatch.{0,30}across ranks)",
            r"uneven (?:inputs|batches) across",
            r"train_batch_size is not equal to",
        ),
        cause="degrees, batch or ranks do not agree: their product is not the number of processes, "
        "or ranks run different work",
        change="make tp x pp x cp x dp the number of GPUs, and the global batch a multiple of "
        "microbatch x dp; `trainjob-advisor explain` names the nearest legal layout",
        source="torchtitan distributed/parallel_dims.py; Megatron-LM arguments.py; DeepSpeed "
        "runtime/config.py",
    ),
    Symptom(
        name="rendezvous_failed",
        severity="error",
        pattern=_lines(
            r"RendezvousTimeoutError|RendezvousConnectionError|RendezvousClosedError",
            r"(?:connect|connection).{0,60}(?:timed out|refused).{0,80}(?:29500|MASTER|TCPStore)",
            r"TCPStore.{0,120}(?:timed out|timeout|failed)",
            r"(?:Name or service not known|Temporary failure in name resolution)",
            r"EADDRINUSE|Address already in use",
        ),
        cause="the processes did not find each other: the first node's name or port is not "
        "reachable, or not all nodes started",
        change="check that all pods run, that the headless Service resolves and that the network "
        "policy allows the port; start all nodes together (gang scheduling)",
        source="PyTorch torch/distributed/elastic/rendezvous; c10d TCPStore",
    ),
    Symptom(
        name="data_loader_failed",
        severity="error",
        pattern=_lines(
            r"DataLoader worker.{0,60}(?:killed|exited)",
            r"insufficient shared memory|unable to (?:open|allocate) shared memory|/dev/shm",
            r"\bBus error\b",
            r"Too many open files",
        ),
        cause="a data loader process died, mostly because /dev/shm of the container is 64 MiB",
        change="mount an emptyDir with medium Memory at /dev/shm, or use fewer workers",
        source="PyTorch torch/utils/data/_utils/signal_handling.py; NCCL shm transport",
    ),
    Symptom(
        name="gpu_fault",
        severity="error",
        pattern=_lines(
            r"NVRM: Xid",
            r"\bXid\b.{0,20}\b\d{2,3}\b",
            r"uncorrectable (?:ECC|NVLink) error",
            r"CUDA error: (?:an illegal memory access|device-side assert|unspecified launch)",
            r"GPU has fallen off the bus",
        ),
        cause="a GPU or its driver failed, or a kernel read outside its memory",
        change="drain the node and look up the Xid; if it follows the job and not the node, run "
        "with CUDA_LAUNCH_BLOCKING=1",
        source="NVIDIA Xid errors documentation; CUDA runtime error strings",
    ),
)
CAPACITY_TOLERANCE: Final = 0.05
"""What a log says a card has and what its driver shows differ by up to this share on one part."""
USE: Final = re.compile(
    r"(?:gpu[_ -]?util(?:ization)?|utilization\.gpu)\D{0,20}?(\d{1,3}(?:\.\d+)?)\s*%|"
    r"\bmfu\b\s*[:=]\s*(\d{1,3}(?:\.\d+)?)\s*%",
    re.IGNORECASE,
)
LOW_USE: Final = Symptom(
    name="low_gpu_use",
    severity="warning",
    pattern=USE,
    cause="GPUs wait: for data, for the network, or for kernels that are too short",
    change="compare the step time with the plan's; time the data loader alone; then look at "
    "NCCL's network and at the microbatch",
    source="nvidia-smi query fields; torchtitan metrics line",
    least=LOW_USE_LINES,
)
OOM_NUMBERS: Final[Mapping[str, re.Pattern[str]]] = {
    "tried_bytes": re.compile(r"Tried to allocate ([\d.]+) (\w+)", re.IGNORECASE),
    "capacity_bytes": re.compile(
        r"total capacity of ([\d.]+) (\w+)|([\d.]+) (\w+) total capacity", re.IGNORECASE
    ),
    "free_bytes": re.compile(r"of which ([\d.]+) (\w+) is free|([\d.]+) (\w+) free", re.IGNORECASE),
    "allocated_bytes": re.compile(
        r"([\d.]+) (\w+) (?:is allocated by PyTorch|already allocated)", re.IGNORECASE
    ),
    "reserved_unused_bytes": re.compile(
        r"([\d.]+) (\w+) is reserved by PyTorch but unallocated", re.IGNORECASE
    ),
}


@dataclass(slots=True, kw_only=True)
class Finding:
    """A symptom that was seen: where first, how often, with which numbers."""

    symptom: Symptom
    file: str
    line: int
    text: str
    count: int = 1
    numbers: dict[str, float] = field(default_factory=dict)


def cut_lines(stream: BinaryIO) -> Iterator[str]:
    """Lines of any encoding, each at most `MAX_LINE_BYTES` long; the rest of one is dropped.

    Read as UTF-8 with replacements. Zero bytes are left out, so that the ASCII of UTF-16 is kept.
    """
    rest = False
    while line := stream.readline(MAX_LINE_BYTES):
        if not rest:
            plain = line.replace(b"\x00", b"").removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff")
            yield plain.decode("utf-8", "replace").strip("\r\n\ufeff")
        rest = not line.endswith(b"\n")


def examine(files: Iterable[tuple[str, BinaryIO]]) -> list[Finding]:
    """Every symptom of some logs, errors first, then in the order of their lines."""
    found: dict[str, Finding] = {}
    for name, stream in files:
        for number, whole in enumerate(cut_lines(stream), start=1):
            text = whole[:MATCHED_CHARACTERS]
            for symptom in _shown_by(text):
                seen = found.get(symptom.name)
                if seen is not None:
                    seen.count += 1
                    continue
                found[symptom.name] = Finding(
                    symptom=symptom,
                    file=name,
                    line=number,
                    text=evidence(text),
                    numbers=oom_numbers(text) if symptom.name == "cuda_out_of_memory" else {},
                )
    order = {"error": 0, "warning": 1, "info": 2}
    kept = [one for one in found.values() if one.count >= one.symptom.least]
    return sorted(kept, key=lambda one: (order[one.symptom.severity], one.file, one.line))


def _shown_by(text: str) -> Iterator[Symptom]:
    for symptom in SYMPTOMS:
        if symptom.pattern.search(text):
            yield symptom
    used = USE.search(text)
    if used and float(used[1] or used[2]) < LOW_USE_PERCENT:
        yield LOW_USE


def evidence(text: str) -> str:
    """A line without secrets and control characters, cut."""
    plain = SECRET.sub(lambda m: f"{m[1] or ''}[hidden]", text)
    plain = "".join(sign if sign.isprintable() else " " for sign in plain).strip()
    return plain if len(plain) <= EVIDENCE_CHARACTERS else plain[: EVIDENCE_CHARACTERS - 1] + "…"


def oom_numbers(text: str) -> dict[str, float]:
    """What an out-of-memory line says about the card, in bytes."""
    numbers = {}
    for name, pattern in OOM_NUMBERS.items():
        match = pattern.search(text)
        if match:
            amount, unit, *_ = (group for group in match.groups() if group is not None)
            try:
                numbers[name] = float(amount) * UNITS.get(unit.lower(), 0)
            except ValueError:
                continue
    return numbers


def diagnosis(findings: Iterable[Finding], setup: Setup | None = None) -> Json:
    """The answer: each finding with its cause, evidence, and change; with numbers for a `setup`."""
    found = list(findings)
    changes = planned_changes(setup) if setup is not None else []
    return {
        "findings": [_finding(one, setup, changes) for one in found],
        "healthy": not any(one.symptom.severity == "error" for one in found),
        "layout": layout_words(setup.layout, setup.request.framework)
        if setup is not None
        else None,
    }


def planned_changes(setup: Setup) -> list[str]:
    """Single changes that hold less memory than the layout, the fastest first, with numbers."""
    layout, request = setup.layout, setup.request
    changes: list[dict[str, object]] = []
    if layout.microbatch_size > 1:
        changes.append({"microbatch_size": layout.microbatch_size // 2})
    changes += [{"recompute": kind} for kind in ("selective", "full") if kind != layout.recompute]
    changes += [{"sharding": kind} for kind in ("zero1", "zero2", "zero3")]
    changes += [{"tp": layout.tp * 2}, {"cp": layout.cp * 2}, {"pp": layout.pp * 2}]
    found: list[Remedy] = []
    for change in changes:
        made = changed(request, layout, change)
        if made is None or made == layout:
            continue
        judged = estimate(request, made)
        if works(request, judged) and judged.memory.total < setup.estimate.memory.total:
            found.append(Remedy(change=change, distance=0.0, estimate=judged))
    found.sort(key=lambda one: one.estimate.step_time_seconds)
    return [_change(setup, one) for one in found[:4]]


def _change(setup: Setup, one: Remedy) -> str:
    (name, value), *_ = one.change.items()
    freed = setup.estimate.memory.total - one.estimate.memory.total
    return (
        f"{name} {getattr(setup.layout, name)} -> {value}: {gib(one.estimate.memory.total)} GiB "
        f"instead of {gib(setup.estimate.memory.total)} ({gib(freed)} less), "
        f"{short_seconds(one.estimate.step_time_seconds)} a step"
    )


def _finding(one: Finding, setup: Setup | None, changes: list[str]) -> Json:
    body: Json = {
        "symptom": one.symptom.name,
        "severity": one.symptom.severity,
        "cause": one.symptom.cause,
        "evidence": {"file": one.file, "line": one.line, "text": one.text},
        "count": one.count,
        "change": one.symptom.change,
        "planner": [],
        "numbers": one.numbers,
        "source": one.symptom.source,
    }
    if one.symptom.name == "cuda_out_of_memory":
        body["change"] = _oom_change(one, body["change"])
        body["planner"] = changes
        if setup is not None:
            body["cause"] += f"; {_predicted(one, setup)}"
    if one.symptom.name == "low_gpu_use" and setup is not None:
        step = short_seconds(setup.estimate.step_time_seconds)
        body["planner"] = [f"the plan expects {step} a step and {setup.estimate.mfu:.0%} MFU"]
    return body


def _predicted(one: Finding, setup: Setup) -> str:
    """What the memory model says of a layout that ran out of memory, and whether it agrees."""
    judged = setup.estimate
    held, card = judged.memory.total, judged.gpu_memory_bytes
    said = (
        f"we predict {gib(held)} GiB of the card's {gib(card)}, and a plan may use "
        f"{gib(judged.limit_bytes)}"
    )
    capacity = one.numbers.get("capacity_bytes", 0)
    if capacity and abs(capacity - card) > CAPACITY_TOLERANCE * card:
        return f"{said}: the log's card has {gib(capacity)} GiB, so this is another job's log"
    if held > judged.limit_bytes:
        return f"{said}: the layout is too large"
    allocated = one.numbers.get("allocated_bytes", 0)
    if allocated > held:
        said += f"; the log says that PyTorch held {gib(allocated)} GiB"
    elif _fragmented(one):
        return said
    return f"{said}: the prediction is too low, or the log is of another layout"


def _fragmented(one: Finding) -> bool:
    """Whether more is reserved and unused than was asked for."""
    return one.numbers.get("reserved_unused_bytes", 0) > one.numbers.get("tried_bytes", 0) > 0


def _oom_change(one: Finding, change: str) -> str:
    if _fragmented(one):
        unused, tried = one.numbers["reserved_unused_bytes"], one.numbers["tried_bytes"]
        return (
            f"{gib(unused)} GiB are reserved and unused, more than the {gib(tried)} asked for: the "
            f"allocator is fragmented; set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, else "
            f"{change}"
        )
    return change
