"""A plan or an estimate as a page of text: what it is, what it costs, why, and what lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console

from app.advisor.advise import EstimateAnswer, PlanAnswer
from app.cli.screen import bar, fancy, heading, say, table
from app.planner.explain import (
    MEMORY_WORDS,
    TIME_WORDS,
    alternatives,
    estimate_line,
    excess,
    gib,
    headline,
    layout_words,
    short_seconds,
)
from app.planner.framework import FrameworkProfile
from app.planner.layout import Layout
from app.planner.request import (
    Alternative,
    Estimate,
    NoFeasiblePlan,
    Plan,
    PlanRequest,
    SearchStats,
)
from app.planner.wording import counted

MIN_SHARE_SHOWN = 0.0005


def show_plan(screen: Console, answer: PlanAnswer) -> None:
    """The whole answer of `plan`."""
    duration_seconds = answer.body["search"]["duration_seconds"]
    if isinstance(answer.outcome, NoFeasiblePlan):
        _show_infeasible(screen, answer.outcome)
    else:
        _show_feasible(screen, answer.outcome)
    _show_search(screen, answer.outcome.search, duration_seconds)


def show_estimate(screen: Console, answer: EstimateAnswer) -> None:
    """The whole answer of `estimate`."""
    estimate = answer.estimate
    say(screen, *_verdict(estimate, answer.request.framework))
    _show_question(screen, answer.request)
    _show_violations(screen, estimate)
    _show_layout(screen, estimate)
    if estimate.time.total > 0:
        _show_costs(screen, estimate, answer.request.cluster.gpu.default_precision)
    _show_list(screen, "Assumptions", estimate.assumptions)


def _show_feasible(screen: Console, plan: Plan) -> None:
    say(screen, headline(plan), style="bold")
    _show_question(screen, plan.request)
    _show_layout(screen, plan.estimate)
    _show_costs(screen, plan.estimate, plan.request.cluster.gpu.default_precision)
    heading(screen, "Why")
    repeated = f"{headline(plan)}, {short_seconds(plan.estimate.step_time_seconds)} a step."
    say(screen, plan.explanation.removeprefix(repeated).strip())
    _show_alternatives(screen, plan, alternatives(plan.request, plan.estimate))
    _show_list(screen, "Assumptions", plan.estimate.assumptions)


def _show_infeasible(screen: Console, outcome: NoFeasiblePlan) -> None:
    say(screen, "Nothing legal fits.", style="bold red")
    _show_question(screen, outcome.request)
    _show_list(screen, "Why", outcome.reasons)
    if outcome.nearest is not None:
        short = outcome.short_by_bytes
        lacks = f" lacks {excess(short)} GiB on each GPU" if short > 0 else ""
        heading(screen, f"The nearest miss{lacks}")
        _print_layout(screen, outcome.nearest)
        _show_memory(screen, outcome.nearest)
    _show_list(screen, "What would make it fit", outcome.remedies)
    _show_list(screen, "Assumptions", outcome.request.assumptions)


def _show_question(screen: Console, request: PlanRequest) -> None:
    model, cluster, work = request.model, request.cluster, request.workload
    size = f"{count_words(model.params)} parameters"
    if model.active_params != model.params:
        size += f", {count_words(model.active_params)} active"
    where = f"{counted(cluster.nodes, 'node')} of {cluster.gpus_per_node} {cluster.gpu.name}"
    what = f"{work.task}, {work.sequence_length:,} tokens x {work.global_batch_size:,} sequences"
    for line in (
        f"{model.name}: {size}",
        f"{where}, {cluster.fabric}",
        f"{what}, {work.optimizer}, {request.framework.name}",
    ):
        say(screen, line, style="dim")


def _show_layout(screen: Console, estimate: Estimate) -> None:
    heading(screen, "Layout")
    _print_layout(screen, estimate)


def _print_layout(screen: Console, estimate: Estimate) -> None:
    layout = estimate.layout
    degrees = " x ".join(f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "cp", "dp"))
    say(screen, f"{degrees} = {counted(layout.world_size, 'GPU')}")
    say(screen, ", ".join(_choices(layout)))
    say(
        screen,
        f"{counted(estimate.num_microbatches, 'microbatch', 'microbatches')} of "
        f"{layout.microbatch_size}, "
        f"global batch {estimate.global_batch_size:,}",
    )


def _choices(layout: Layout) -> Iterable[str]:
    yield layout.precision
    yield f"{layout.sharding}{f' over {layout.dp_shard}' if layout.sharding == 'hsdp' else ''}"
    yield f"recompute {layout.recompute}"
    if layout.ep > 1:
        yield f"ep {layout.ep}"
    if layout.vpp > 1:
        yield f"vpp {layout.vpp}"
    if layout.sequence_parallel:
        yield "sequence parallel"
    if layout.stage_layers:
        yield f"layers a stage {'/'.join(map(str, layout.stage_layers))}"


def _show_costs(screen: Console, estimate: Estimate, peak: str) -> None:
    _show_memory(screen, estimate)
    _show_time(screen, estimate, peak)


def _show_memory(screen: Console, estimate: Estimate) -> None:
    memory, card = estimate.memory, estimate.gpu_memory_bytes
    stage = " (the fullest pipeline stage)" if estimate.layout.pp > 1 else ""
    heading(screen, f"Memory of one GPU{stage}")
    rows = [(word, getattr(memory, name)) for name, word in MEMORY_WORDS.items()]
    _print_terms(screen, rows, whole=card, unit="GiB", show=gib, style="green")
    used = f"{gib(memory.total)} of {gib(card)} GiB"
    say(screen, f"{used}; a plan may use {gib(estimate.limit_bytes)}")
    if memory.host > 0:
        say(screen, f"and {gib(memory.host)} GiB of host memory on each node")


def _show_time(screen: Console, estimate: Estimate, peak: str) -> None:
    """`peak` is the precision whose peak rate MFU is a share of."""
    time = estimate.time
    heading(screen, "Time of one step")
    rows = [(word, getattr(time, name)) for name, word in TIME_WORDS.items()]
    _print_terms(screen, rows, whole=time.total, unit="", show=short_seconds, style="blue")
    rate = estimate.model_flop_per_second_per_gpu / 1e12
    tokens = estimate.tokens_per_second_per_gpu
    of_peak = f" of the {peak} peak" if estimate.layout.precision != peak else ""
    say(
        screen,
        f"{short_seconds(time.total)} a step; {tokens:,.0f} tokens/s and {rate:,.0f} TFLOP/s "
        f"for each GPU, {estimate.mfu:.0%} MFU{of_peak}",
    )


def _print_terms(
    screen: Console,
    rows: Sequence[tuple[str, float]],
    *,
    whole: float,
    unit: str,
    show: Callable[[float], str],
    style: str,
) -> None:
    """Terms that weigh anything, each with its share of `whole`, and a bar if there is room."""
    blocks = fancy(screen)
    width = min(40, screen.width - 40)
    terms = table("", unit, "%", "", right=(1, 2))
    for word, value in rows:
        share = value / whole
        if share >= MIN_SHARE_SHOWN:
            drawn = bar(share, width, blocks=blocks, style=style) if width > 0 else ""
            terms.add_row(word, show(value), f"{100 * share:.1f}", drawn)
    screen.print(terms)


def _show_alternatives(screen: Console, plan: Plan, lost: Sequence[Alternative]) -> None:
    if not lost:
        return
    heading(screen, "Runners-up")
    for one in lost:
        estimate = one.estimate
        step = f"{estimate.step_time_seconds / plan.estimate.step_time_seconds - 1:+.1%} step"
        held = f"{gib(estimate.memory.total)} GiB"
        choices = f"{one.layout.sharding}, recompute {one.layout.recompute}"
        say(
            screen, f"{layout_words(one.layout, plan.request.framework)}, {choices}: {step}, {held}"
        )
        say(screen, f"  {one.why_not}", style="dim")


def _show_violations(screen: Console, estimate: Estimate) -> None:
    if estimate.violations:
        heading(screen, "Rules broken")
        for one in estimate.violations:
            say(screen, f"- {one.message} ({one.rule})")


def _show_list(screen: Console, title: str, lines: Sequence[str]) -> None:
    if lines:
        heading(screen, title)
        for line in lines:
            say(screen, f"- {line}")


def _show_search(screen: Console, search: SearchStats, duration_seconds: float) -> None:
    screen.print()
    words = (
        f"{search.configurations:,} layouts searched in {duration_seconds * 1e3:,.1f} ms, "
        f"{search.evaluated:,} of them by full evaluation"
    )
    say(screen, words, style="dim")


def _verdict(estimate: Estimate, framework: FrameworkProfile) -> tuple[str, str]:
    line = estimate_line(estimate, framework) if estimate.time.total > 0 else ""
    if not estimate.legal:
        return f"Illegal layout. {line}", "bold red"
    if not estimate.fits:
        return f"Legal, but does not fit. {line}", "bold red"
    return f"Legal and fits. {line}", "bold green"


def count_words(number: int) -> str:
    """A count of parameters as people say it: `70.6 B`."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:,}"
