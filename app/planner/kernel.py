"""The cost model flattened for the search: the same formulas, once per argument.

`Kernel` asks `timing` and `memory` for the coefficients of one request and keeps each where the
degrees it depends on are known: `Tensor` (tp), `Ring` (tp, cp), `Experts` (tp, ep) and `Group`
(tp, cp, ep). A leaf is then a handful of multiplications. Nothing is modelled here: a layer's
seconds are affine in tokens, its bytes linear in the microbatch, states linear in parameters.
Property tests hold its sums to `timing.step_time` and `memory.memory`.

Written as plain classes over floats, so that the compiled form (see docs/performance.md) keeps them
unboxed; the same source runs uncompiled.
"""

from __future__ import annotations

from typing import Final

from app.planner.hardware import PRECISIONS
from app.planner.layout import RECOMPUTES, Degrees, Sketch
from app.planner.legality import padded_vocabulary, split_layers, usable_shardings
from app.planner.memory import (
    Share,
    StageParams,
    activation_bytes_per_layer,
    adapter_params_per_layer,
    counted_params,
    exchanged_bytes,
    gathered_bytes,
    kept_of,
    layer_params,
    logits_bytes,
    placed_states,
    states_of,
    table_excess,
    trains_all,
)
from app.planner.native import mypyc_attr
from app.planner.request import PlanRequest
from app.planner.space import Node
from app.planner.timing import (
    NOTHING,
    Affine,
    BlockSeconds,
    LayerSeconds,
    Rates,
    ShardGroups,
    SharedCosts,
    SharedSeconds,
    Wire,
    block_seconds,
    cp_seconds_per_layer,
    ep_seconds_per_pass,
    head_seconds,
    launch_routed_seconds,
    layer_seconds,
    owned_params,
    p2p_seconds,
    tp_seconds_per_pass,
)

ROUNDING: Final = 1e-9
"""Bounds are lowered by this share, so that rounding never prunes the optimum."""
LOWERED: Final = 1 - ROUNDING

ROWS: Final[dict[str, int]] = {
    each: place * len(RECOMPUTES) for place, each in enumerate(PRECISIONS)
}
"""Where the `PassCosts` of a precision begin among those of a group."""


@mypyc_attr(acyclic=True)
class StageKind:
    """`count` equal pipeline stages: layers of each sort, vocabulary tables, place."""

    def __init__(self, *, index: int, plain: int, routed: int, tables: int, last: bool) -> None:
        self.index = index
        self.plain = float(plain)
        self.routed = float(routed)
        self.tables = float(tables)
        self.last = last
        self.count = 1.0


@mypyc_attr(acyclic=True)
class PassCosts:
    """Seconds of one microbatch at (tp, cp, ep, precision) under one recomputation.

    `plain` and `routed` layers and the head, affine in tokens; `launch` is the floor that launching
    the kernels of a layer sets, `launch_routed` what an MoE layer adds to it.
    """

    def __init__(
        self, *, plain: Affine, routed: Affine, head: Affine, launch: float, launch_routed: float
    ) -> None:
        self.plain_slope, self.plain_fixed = plain.per_token, plain.fixed
        self.routed_slope, self.routed_fixed = routed.per_token, routed.fixed
        self.head_slope, self.head_fixed = head.per_token, head.fixed
        self.launch = launch
        self.launch_routed = launch_routed

    def pipeline(self, tokens: float, kinds: list[StageKind]) -> tuple[float, float]:
        """Seconds of one microbatch on the slowest stage, and on all stages together."""
        plain = self.plain_slope * tokens + self.plain_fixed
        routed = self.routed_slope * tokens + self.routed_fixed
        head = self.head_slope * tokens + self.head_fixed
        launch_routed = self.launch + self.launch_routed
        slowest = total = 0.0
        for kind in kinds:
            seconds = kind.plain * plain + kind.routed * routed
            if kind.last:
                seconds += head
            launched = kind.plain * self.launch + kind.routed * launch_routed
            seconds = max(seconds, launched)
            slowest = max(slowest, seconds)
            total += seconds * kind.count
        return slowest, total


@mypyc_attr(acyclic=True)
class StateBytes:
    """Bytes per parameter under one sharding, replicated and sharded, by where they live."""

    def __init__(self, request: PlanRequest, layout: Degrees) -> None:
        states = states_of(request, layout)
        placed = placed_states(request, layout, states)
        parameters, gradients, optimizer = placed.parameters, placed.gradients, placed.optimizer
        self.replicated = parameters[0] + gradients[0] + optimizer[0]
        self.sharded = parameters[1] + gradients[1] + optimizer[1]
        self.host_replicated, self.host_sharded = placed.host
        self.frozen_replicated, self.frozen_sharded = placed.frozen
        self.frozen_host_sharded = placed.frozen_host[1]
        self.gathers = states.weights.replicated == 0
        self.moments_sharded = states.moments_sharded
        self.whole_gradients = states.gradients.replicated > 0
        self.cut_weights = states.weights.sharded > 0


@mypyc_attr(acyclic=True)
class KeptBytes:
    """Device bytes of one sequence on each stage kind, at (tp, cp, pp, precision, recomputation).

    `kept` stands once per microbatch in flight, `once` for the one in work; `plain` is both under
    the plain schedule, which keeps pp - i microbatches on stage i.
    """

    def __init__(self, kept: list[float], once: list[float], plain: list[float]) -> None:
        self.kept = kept
        self.once = once
        self.plain = plain


@mypyc_attr(acyclic=True)
class LayerBytes:
    """What a dense and an MoE layer keep of a sequence, and what each in work holds beside."""

    def __init__(
        self, kept: tuple[float, float], again: tuple[float, float], exchanged: float
    ) -> None:
        self.plain, self.routed = kept
        self.plain_work, self.routed_work = again[0], again[1] + exchanged


@mypyc_attr(acyclic=True)
class FirstStage:
    """What a first stage holds in one precision.

    `states` at least, under any sharding, in bytes per parameter; `kept[r]` bytes of a sequence
    under recomputation r and the plain schedule, `lightest` under the `wanted` that keeps least.
    From `row` on stand the precision's `passes`.
    """

    def __init__(self, precision: str, states: Share, kept: list[float], wanted: list[int]) -> None:
        self.precision = precision
        self.row = ROWS[precision]
        self.replicated, self.sharded = states
        self.kept = kept
        self.lightest = kept[wanted[0]]
        for recompute in wanted:
            self.lightest = min(self.lightest, kept[recompute])


@mypyc_attr(acyclic=True)
class Pipe:
    """What (tp, cp, pp) decide: the stages, what crosses between them and what they keep.

    `per_replica` sequences go through it in a step, `tokens` of each on a rank. `firsts[p]` is the
    first stage in precision p of the node's; `kept[p][r]` every stage under recomputation r, once
    asked for.
    """

    def __init__(
        self,
        pp: int,
        kinds: list[StageKind],
        crossing: Affine,
        *,
        per_replica: int,
        tokens: float,
        precisions: tuple[str, ...],
        firsts: list[FirstStage],
    ) -> None:
        self.pp = pp
        self.kinds = kinds
        self.crossing = crossing
        self.per_replica = per_replica
        self.tokens = tokens
        self.precisions = precisions
        self.firsts = firsts
        self.kept: list[list[KeptBytes]] = []

    def crossings(self, shortest: float, fewest: int) -> float:
        """Seconds of the crossings of `fewest` or more microbatches of `shortest` or more tokens.

        Without interleaving a microbatch crosses m + pp - 1 times, on the way of the slowest.
        """
        tokens = self.per_replica * self.tokens + shortest * (self.pp - 1)
        return self.crossing.per_token * tokens + self.crossing.fixed * (fewest + self.pp - 1)


@mypyc_attr(acyclic=True)
class Ring:
    """What (tp, cp) decides: context-parallel traffic and what stages keep."""

    def __init__(self, cp: int, num_layers: int) -> None:
        self.cp = cp
        self.traffic: dict[str, Affine] = {}
        # By stages, of which there are no more than layers.
        self.pipes: list[Pipe | None] = [None] * (num_layers + 1)


@mypyc_attr(acyclic=True)
class Experts:
    """What (tp, ep) decides: expert traffic, routed layers, the parameters of every stage."""

    def __init__(self, ep: int, dense: float, routed: float, traffic: Affine) -> None:
        self.ep = ep
        self.dense = dense
        self.routed = routed
        self.traffic = traffic
        self.layers: dict[str, LayerSeconds] = {}
        self.firsts: dict[int, StageParams] = {}
        self.stages: dict[int, list[StageParams]] = {}


@mypyc_attr(acyclic=True)
class Tensor:
    """What tp decides: dense layers, the head, parameters, traffic and bytes around both."""

    def __init__(
        self,
        tp: int,
        *,
        sequence_parallel: bool,
        dense: float,
        table: float,
        logits: float,
        traffic: Affine,
    ) -> None:
        self.tp = tp
        self.sequence_parallel = sequence_parallel
        self.dense = dense
        self.table = table
        self.logits = logits
        self.traffic = traffic
        self.layers: dict[str, LayerSeconds] = {}
        self.blocks: list[dict[str, BlockSeconds]] = [{}, {}]
        self.kept: dict[str, list[LayerBytes]] = {}
        self.heads: dict[str, Affine] = {}
        self.rings: dict[int, Ring] = {}
        self.experts: dict[int, Experts] = {}


@mypyc_attr(acyclic=True)
class Group:
    """What (tp, cp, ep) decide together."""

    def __init__(self, tensor: Tensor, ring: Ring, experts: Experts) -> None:
        self.tensor = tensor
        self.ring = ring
        self.experts = experts
        # By precision, as `ROWS` say, then recomputation.
        self.passes: list[PassCosts | None] = [None] * (len(ROWS) * len(RECOMPUTES))


@mypyc_attr(acyclic=True)
class Kernel:
    """Coefficients of one request, computed on demand."""

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        model, framework = request.model, request.framework
        self.length = float(request.workload.sequence_length)
        self.batch = request.workload.global_batch_size
        self.num_layers = model.num_layers
        self.num_dense_layers = model.num_dense_layers
        self.tied = model.tied_embeddings
        self.outside = float(model.outside_params)
        override = model.params_override
        self.scale = override / max(1, counted_params(model)) if override else 1.0
        self.full_training = trains_all(request)
        self.adapters = adapter_params_per_layer(model, request.workload.lora_rank)
        self.gathered_layer, self.gathered_table = gathered_bytes(request)
        self.offloads = request.workload.offload != "none"
        self.fragmented = 1 + framework.fragmentation
        self.context = framework.context_bytes
        self.communicator = framework.communicator_bytes
        self.table_excess = table_excess(request)
        self.bucket = framework.bucket_bytes
        self.unhidden_each = 1 - framework.overlap_each
        self.unhidden_step = 1 - framework.overlap_dp
        self.shared_costs = SharedCosts(request)
        self.links = self.shared_costs.links
        self.exposed_pp = 1 - framework.overlap_pp
        self.uneven = framework.uneven_pipeline
        self.launch = request.efficiency.launch_seconds
        self.launch_routed = launch_routed_seconds(request)
        self.launch_collective = request.efficiency.launch_collective_seconds
        self.gpus_per_node = request.cluster.gpus_per_node
        # `recomputes` by place; `wanted` are the places a plan may have.
        self.recomputes: list[str] = list(framework.kept)
        pin = request.pins.recompute
        self.wanted: list[int] = [
            place for place, kind in enumerate(self.recomputes) if pin in (None, kind)
        ]
        # No other undercuts the seconds of this one, where a plan may have it; else -1.
        self.quickest = -1
        for place in self.wanted:
            if self.recomputes[place] == "none":
                self.quickest = place
        self.ordered: list[int] = sorted(self.wanted, key=lambda place: place != self.quickest)
        self.fractions: list[float] = [
            float(framework.recompute_flop_fraction[kind]) for kind in framework.kept
        ]
        self.rates: dict[str, Rates] = {}
        self._tensors: dict[int, Tensor] = {}
        self._stages: dict[int, list[StageKind]] = {}
        # By whether there is a pipeline.
        self._leanest: list[dict[str, Share]] = [{}, {}]
        self._states: list[dict[str, dict[int, dict[str, StateBytes]]]] = [{}, {}]

    def group(self, tp: int, cp: int, ep: int, *, sequence_parallel: bool) -> Group:
        """Costs that these degrees decide."""
        tensor = self.tensor(tp, sequence_parallel=sequence_parallel)
        return Group(tensor, self.ring(tensor, cp), self.experts(tensor, ep))

    def tensor(self, tp: int, *, sequence_parallel: bool) -> Tensor:
        """Costs that tp decides, which decides `sequence_parallel` too."""
        found = self._tensors.get(tp)
        if found is None:
            request, model = self.request, self.request.model
            layout = Sketch(tp=tp, sequence_parallel=sequence_parallel)
            multiple = request.framework.vocabulary_multiple
            found = Tensor(
                tp,
                sequence_parallel=sequence_parallel,
                dense=layer_params(model, layout, routed=False)[0],
                table=padded_vocabulary(model.vocab_size, tp, multiple) * model.hidden_size / tp,
                logits=logits_bytes(request, layout),
                traffic=tp_seconds_per_pass(request, self.links, layout, routed=False),
            )
            self._tensors[tp] = found
        return found

    def ring(self, tensor: Tensor, cp: int) -> Ring:
        """Costs that cp adds to a tp."""
        found = tensor.rings.get(cp)
        if found is None:
            found = Ring(cp, self.num_layers)
            tensor.rings[cp] = found
        return found

    def passed(self, tensor: Tensor, ring: Ring, precision: str) -> Affine:
        """Context-parallel traffic of one layer."""
        found = ring.traffic.get(precision)
        if found is None:
            layout = Sketch(tp=tensor.tp, cp=ring.cp, precision=precision)
            found = cp_seconds_per_layer(self.request, self.links, layout)
            ring.traffic[precision] = found
        return found

    def experts(self, tensor: Tensor, ep: int) -> Experts:
        """Costs that ep adds to a tp."""
        found = tensor.experts.get(ep)
        if found is None:
            layout = Sketch(tp=tensor.tp, ep=ep, sequence_parallel=tensor.sequence_parallel)
            dense, routed = layer_params(self.request.model, layout, routed=True)
            around = tp_seconds_per_pass(self.request, self.links, layout, routed=True)
            exchange = ep_seconds_per_pass(self.request, layout)
            found = Experts(ep, dense, routed, around.plus(exchange))
            tensor.experts[ep] = found
        return found

    def layer(self, tensor: Tensor, ep: int, precision: str, *, routed: bool) -> LayerSeconds:
        """Compute of one layer."""
        rates = self.rates.get(precision)
        if rates is None:
            rates = Rates(self.request, precision)
            self.rates[precision] = rates
        layout = Sketch(
            tp=tensor.tp,
            ep=ep,
            sequence_parallel=tensor.sequence_parallel,
            precision=precision,
        )
        blocks = tensor.blocks[1 if routed else 0]
        block = blocks.get(precision)
        if block is None:
            block = block_seconds(self.request, layout, rates, routed=routed)
            blocks[precision] = block
        return layer_seconds(self.request, layout, rates, block, routed=routed)

    def head(self, tensor: Tensor, precision: str) -> Affine:
        """Seconds of the output head."""
        found = tensor.heads.get(precision)
        if found is None:
            found = head_seconds(self.request, Sketch(tp=tensor.tp, precision=precision))
            tensor.heads[precision] = found
        return found

    def passes(self, group: Group, first: FirstStage, recompute: int) -> PassCosts:
        """Seconds of a microbatch in the precision of `first`, under that recomputation."""
        place = first.row + recompute
        found = group.passes[place]
        if found is None:
            found = self._pass(group, first.precision, recompute)
            group.passes[place] = found
        return found

    def _pass(self, group: Group, precision: str, recompute: int) -> PassCosts:
        tensor, experts = group.tensor, group.experts
        fraction = self.fractions[recompute]
        again = 1.0 if self.recomputes[recompute] == "full" else 0.0
        launch = self.launch * (3 + fraction)
        if tensor.tp > 1:
            launch += self.launch_collective * 2 * (2 + again)
        ring = self.passed(tensor, group.ring, precision)
        plain = routed = NOTHING
        if self.num_dense_layers:
            compute = tensor.layers.get(precision)
            if compute is None:
                compute = self.layer(tensor, 1, precision, routed=False)
                tensor.layers[precision] = compute
            plain = one_layer(compute, tensor.traffic, ring, fraction, again)
        if self.num_layers > self.num_dense_layers:
            compute = experts.layers.get(precision)
            if compute is None:
                compute = self.layer(tensor, experts.ep, precision, routed=True)
                experts.layers[precision] = compute
            routed = one_layer(compute, experts.traffic, ring, fraction, again)
        return PassCosts(
            plain=plain,
            routed=routed,
            head=self.head(tensor, precision),
            launch=launch,
            launch_routed=self.launch_routed * (3 + fraction),
        )

    def stage_kinds(self, pp: int) -> list[StageKind]:
        """The stages of a pipeline, neighbours alike folded together."""
        found = self._stages.get(pp)
        if found is None:
            found = self._stage_kinds(split_layers(self.num_layers, pp, uneven=self.uneven))
            self._stages[pp] = found
        return found

    def _stage_kinds(self, stages: tuple[int, ...]) -> list[StageKind]:
        kinds: list[StageKind] = []
        start = 0
        pp = len(stages)
        for index in range(pp):
            layers = stages[index]
            plain = max(0, min(start + layers, self.num_dense_layers) - start)
            last = index == pp - 1
            tables = int(index == 0) + int(last and (pp > 1 or not self.tied))
            routed = layers - plain
            before = kinds[-1] if kinds else None
            if (
                before is not None
                and before.plain == plain
                and before.routed == routed
                and before.tables == tables
                and before.last == last
            ):
                before.count += 1
            else:
                kinds.append(
                    StageKind(index=index, plain=plain, routed=routed, tables=tables, last=last)
                )
            start += layers
        return kinds

    def pipe(self, group: Group, node: Node) -> Pipe:
        """The pipeline of a node."""
        found = group.ring.pipes[node.pp]
        if found is None:
            kinds, precisions = self.stage_kinds(node.pp), node.axes.precisions
            found = Pipe(
                node.pp,
                kinds,
                self.crossing(node),
                per_replica=self.batch // node.dp,
                tokens=self.length / node.cp,
                precisions=precisions,
                firsts=[self.first(group, kinds[0], node.pp, each) for each in precisions],
            )
            group.ring.pipes[node.pp] = found
        return found

    def crossing(self, node: Node) -> Affine:
        """Exposed seconds of one crossing between the stages of a node."""
        if node.pp == 1:
            return NOTHING
        layout = Sketch(
            tp=node.tp,
            pp=node.pp,
            cp=node.cp,
            dp=node.dp,
            sequence_parallel=node.sequence_parallel,
        )
        return p2p_seconds(self.request, self.links, layout).times(self.exposed_pp)

    def shared(
        self,
        wire: Wire,
        states: StateBytes,
        ranks: ShardGroups,
        stage: StageParams,
        *,
        sharding: str,
        pp: int,
    ) -> SharedSeconds:
        """Data-parallel traffic and update of a sharding, of the first stage, as in `timing`."""
        return self.shared_costs.seconds(
            wire,
            sharding,
            pp=pp,
            owned=owned_params(stage, ranks, sharded=states.moments_sharded),
            whole_gradients=states.whole_gradients,
            cut_weights=states.cut_weights,
        )

    def exposed(self, shared: SharedSeconds, *, microbatches: int, slowest: float) -> float:
        """Data-parallel seconds that compute does not hide, and the update. At least zero."""
        per_microbatch, per_step, update = shared
        within = max(per_microbatch * self.unhidden_each, per_microbatch - slowest)
        left = slowest - (per_microbatch - within)
        after = max(per_step * self.unhidden_step, per_step - left)
        return within * microbatches + after + update

    def states(self, precision: str, *, piped: bool, ranks: int) -> dict[str, StateBytes]:
        """Bytes per parameter by sharding, over `ranks`, which only offloading asks for."""
        known = self._states[1 if piped else 0].setdefault(precision, {})
        group = ranks if self.offloads else 0
        found = known.get(group)
        if found is None:
            framework, pp = self.request.framework, 2 if piped else 1
            found = {}
            for sharding in usable_shardings(framework, pp=pp):
                sketch = Sketch(pp=pp, dp=ranks, sharding=sharding, precision=precision)
                found[sharding] = StateBytes(self.request, sketch)
            known[group] = found
        return found

    def leanest_states(self, precision: str, *, piped: bool) -> Share:
        """The least any sharding replicates, and the least any shards, in bytes per parameter."""
        known = self._leanest[1 if piped else 0]
        found = known.get(precision)
        if found is None:
            table = self.states(precision, piped=piped, ranks=1).values()
            found = (
                min([each.replicated for each in table]),
                min([each.sharded for each in table]),
            )
            known[precision] = found
        return found

    def stage_params(self, group: Group, pipe: Pipe) -> list[StageParams]:
        """Parameters of one rank of every stage kind of a pipeline."""
        found = group.experts.stages.get(pipe.pp)
        if found is None:
            found = [self.first_stage(group, pipe)]
            for kind in pipe.kinds[1:]:
                found.append(self._stage_params(group, kind))
            group.experts.stages[pipe.pp] = found
        return found

    def first_stage(self, group: Group, pipe: Pipe) -> StageParams:
        """Parameters of one rank of the first stage."""
        found = group.experts.firsts.get(pipe.pp)
        if found is None:
            found = self._stage_params(group, pipe.kinds[0])
            group.experts.firsts[pipe.pp] = found
        return found

    def whole(self, group: Group, kind: StageKind) -> tuple[float, float]:
        """Dense and routed parameters of one rank of a stage, frozen or not."""
        tensor, experts = group.tensor, group.experts
        dense = kind.plain * tensor.dense + kind.routed * experts.dense + kind.tables * tensor.table
        if kind.last:
            dense += self.outside
        return dense * self.scale, kind.routed * experts.routed * self.scale

    def trained(self, group: Group, kind: StageKind) -> tuple[float, float]:
        """Dense and routed parameters of one rank of a stage that get gradients."""
        if self.full_training:
            return self.whole(group, kind)
        return (kind.plain + kind.routed) * self.adapters / group.tensor.tp, 0.0

    def _stage_params(self, group: Group, kind: StageKind) -> StageParams:
        tensor, experts = group.tensor, group.experts
        dense, routed = self.whole(group, kind)
        layer = tensor.dense if kind.plain else 0.0
        if kind.routed:
            layer = max(layer, experts.dense + experts.routed)
        table = tensor.table if kind.tables else 0.0
        gathered = max(layer * self.gathered_layer, table * self.gathered_table)
        if self.full_training:
            return StageParams(dense=dense, routed=routed, gathered_bytes=gathered)
        return StageParams(
            dense=self.trained(group, kind)[0],
            routed=0.0,
            gathered_bytes=gathered,
            frozen_dense=dense,
            frozen_routed=routed,
            frozen_tables=kind.tables * tensor.table * self.scale,
        )

    def kept(self, group: Group, pipe: Pipe) -> list[list[KeptBytes]]:
        """Bytes of a sequence on each stage kind of a pipeline, by precision and recomputation."""
        if not pipe.kept:
            for precision in pipe.precisions:
                layers = self.layers_keep(group.tensor, precision)
                pipe.kept.append([self._kept(pipe, layer, group) for layer in layers])
        return pipe.kept

    def first(self, group: Group, kind: StageKind, pp: int, precision: str) -> FirstStage:
        """What the first stage of a pipeline holds."""
        kept: list[float] = []
        for layer in self.layers_keep(group.tensor, precision):
            each, once = self.stage_keeps(kind, layer, group)
            kept.append(each * pp + once)
        states = self.leanest_states(precision, piped=pp > 1)
        return FirstStage(precision, states, kept, self.wanted)

    def layers_keep(self, tensor: Tensor, precision: str) -> list[LayerBytes]:
        """Bytes of a whole sequence on a layer of each sort, by recomputation."""
        found = tensor.kept.get(precision)
        if found is None:
            layout = Sketch(
                tp=tensor.tp, sequence_parallel=tensor.sequence_parallel, precision=precision
            )
            exchanged = exchanged_bytes(self.request, layout)
            everything = self.activations(layout, "none")
            found = []
            for recompute in self.recomputes:
                kept = everything if recompute == "none" else self.activations(layout, recompute)
                again = everything if recompute == "full" else (0.0, 0.0)
                found.append(LayerBytes(kept, again, exchanged))
            tensor.kept[precision] = found
        return found

    def activations(self, layout: Degrees, recompute: str) -> tuple[float, float]:
        """Bytes one dense and one MoE layer keep per sequence of a microbatch."""
        kept = kept_of(self.request.framework, recompute, layout.precision)
        return (
            activation_bytes_per_layer(self.request, layout, kept, routed=False),
            activation_bytes_per_layer(self.request, layout, kept, routed=True),
        )

    def stage_keeps(self, kind: StageKind, layer: LayerBytes, group: Group) -> tuple[float, float]:
        """Bytes of a sequence on a stage: once per microbatch in flight, and for that in work.

        Every rank of a ring keeps its part of the sequence.
        """
        work = layer.routed_work if kind.routed else layer.plain_work
        if kind.last:
            work += group.tensor.logits
        kept = kind.plain * layer.plain + kind.routed * layer.routed
        scale = self.fragmented / group.ring.cp
        return kept * scale, work * scale

    def _kept(self, pipe: Pipe, layer: LayerBytes, group: Group) -> KeptBytes:
        kept: list[float] = []
        once: list[float] = []
        both: list[float] = []
        for kind in pipe.kinds:
            each, work = self.stage_keeps(kind, layer, group)
            kept.append(each)
            once.append(work)
            both.append(each * (pipe.pp - kind.index) + work)
        return KeptBytes(kept, once, both)

    def node_bytes(self, tp: int, pp: int, cp: int, ep: int, dp: int) -> float:
        """Bytes of the context and the process groups of a node, HSDP's replicas aside."""
        groups = int(tp > 1) + int(pp > 1) + int(cp > 1) + int(ep > 1) + int(dp * cp > 1)
        return self.context + groups * self.communicator

    def device_bytes(self, states: StateBytes, stage: StageParams, ranks: ShardGroups) -> float:
        """Bytes of a stage that no microbatch changes, communicators and context aside."""
        of_dense = states.replicated + states.sharded / ranks.dense
        of_routed = states.replicated + states.sharded / ranks.routed
        device = stage.dense * of_dense + stage.routed * of_routed
        if not self.full_training:
            frozen, cut = states.frozen_replicated, states.frozen_sharded
            base = stage.frozen_dense + stage.frozen_tables * self.table_excess
            device += base * (frozen + cut / ranks.dense)
            device += stage.frozen_routed * (frozen + cut / ranks.routed)
        buffers = 0.0
        if states.gathers and ranks.dense > 1:
            buffers = stage.gathered_bytes
        if ranks.dense * ranks.replicas > 1:
            bucket = 4 * (stage.dense + stage.routed)
            buffers += min(bucket, self.bucket)
        return device + buffers * self.fragmented

    def host_bytes(
        self, states: StateBytes, stages: list[StageParams], ranks: ShardGroups
    ) -> float:
        """Bytes a node's host holds at most."""
        of_dense = states.host_replicated + states.host_sharded / ranks.dense
        of_routed = states.host_replicated + states.host_sharded / ranks.routed
        base = states.frozen_host_sharded
        most = 0.0
        for stage in stages:
            host = stage.dense * of_dense + stage.routed * of_routed
            frozen = stage.frozen_dense + stage.frozen_tables * self.table_excess
            host += base * (frozen / ranks.dense + stage.frozen_routed / ranks.routed)
            most = max(most, host)
        return most * self.gpus_per_node


def one_layer(
    compute: LayerSeconds, traffic: Affine, ring: Affine, fraction: float, again: float
) -> Affine:
    """Compute and traffic of one layer of a microbatch; `again` is 1 where traffic is repeated."""
    forward, backward = compute.forward, compute.backward
    forwards, passes = 1 + fraction, 2 + again
    return Affine(
        forward.per_token * forwards
        + backward.per_token
        + traffic.per_token * passes
        + ring.per_token,
        forward.fixed * forwards + backward.fixed + traffic.fixed * passes + ring.fixed,
    )
