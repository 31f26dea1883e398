"""The cost model flattened for the search: the same formulas, once per argument.

`Kernel` asks `timing` and `memory` for the coefficients of one request, remembers them by the few
degrees they depend on, and combines them for a leaf in a handful of multiplications. Nothing is
modelled here: a layer's seconds are affine in tokens, its bytes linear in the microbatch, states
linear in parameters. Property tests hold its sums to `timing.step_time` and `memory.memory`.

Written as plain classes over floats, so that the compiled form (see docs/performance.md) keeps them
unboxed; the same source runs uncompiled.
"""

from __future__ import annotations

from app.planner.layout import Layout
from app.planner.legality import padded_vocabulary, split_layers
from app.planner.memory import (
    SIXTEEN_BIT,
    activation_bytes_per_layer,
    adapter_params_per_layer,
    counted_params,
    dense_shard_group,
    expert_shard_group,
    in_flight,
    kept_of,
    layer_params,
    logits_bytes,
    num_groups,
    placed_states,
    stage_params,
    states_of,
)
from app.planner.memory import StageParams as MemoryStageParams
from app.planner.request import PlanRequest
from app.planner.timing import (
    Affine,
    cp_seconds_per_layer,
    dp_traffic,
    ep_seconds_per_layer,
    head_seconds,
    layer_seconds,
    optimizer_seconds,
    p2p_seconds,
    tp_seconds_per_layer,
)

ROUNDING = 1e-9
"""Bounds are lowered by this share, so that rounding never prunes the optimum."""
LOWERED = 1 - ROUNDING


class StageKind:
    """`count` equal pipeline stages: layers of each sort, vocabulary tables, place."""

    def __init__(self, *, index: int, plain: int, routed: int, tables: int, last: bool) -> None:
        self.index = index
        self.plain = plain
        self.routed = routed
        self.tables = tables
        self.last = last
        self.count = 1


class LayerCosts:
    """Affine seconds of one layer at (tp, cp, ep, precision): per token and fixed.

    `forward` and `backward` are compute; `traffic` is tp, cp and ep together without recomputation,
    `again` what full recomputation adds to it.
    """

    def __init__(
        self,
        forward: tuple[float, float],
        backward: tuple[float, float],
        traffic: tuple[float, float],
        again: tuple[float, float],
    ) -> None:
        self.forward_slope, self.forward_fixed = forward
        self.backward_slope, self.backward_fixed = backward
        self.traffic_slope, self.traffic_fixed = traffic
        self.again_slope, self.again_fixed = again


class PassCosts:
    """Seconds of one microbatch at (tp, cp, ep, precision) under one recomputation.

    `plain` and `routed` layers and the head, affine in tokens; `launch` is the floor that launching
    the kernels of a layer sets, `launch_routed` what an MoE layer adds to it. `whole` sums over all
    layers and the head, `launched` the floors: all stages together take at least either.
    """

    def __init__(
        self,
        *,
        plain: tuple[float, float, float, float],
        routed: tuple[float, float, float, float],
        head: tuple[float, float],
        launch: tuple[float, float],
        layers: tuple[int, int],
    ) -> None:
        self.plain_slope, self.plain_fixed, self.plain_traffic, self.plain_latency = plain
        self.routed_slope, self.routed_fixed, self.routed_traffic, self.routed_latency = routed
        self.head_slope, self.head_fixed = head
        self.launch, self.launch_routed = launch
        dense, moe = layers
        self.whole_slope = (
            dense * (self.plain_slope + self.plain_traffic)
            + moe * (self.routed_slope + self.routed_traffic)
            + self.head_slope
        )
        self.whole_fixed = (
            dense * (self.plain_fixed + self.plain_latency)
            + moe * (self.routed_fixed + self.routed_latency)
            + self.head_fixed
        )
        self.launched = (dense + moe) * self.launch + moe * self.launch_routed

    def least(self, tokens: float) -> float:
        """A lower bound on the seconds of all stages together."""
        return max(self.whole_slope * tokens + self.whole_fixed, self.launched)


class StageParams:
    """Parameters of one rank of one stage kind, and the largest block gathered at once."""

    def __init__(
        self, dense: float, routed: float, trained_dense: float, trained_routed: float, unit: float
    ) -> None:
        self.dense = dense
        self.routed = routed
        self.trained_dense = trained_dense
        self.trained_routed = trained_routed
        self.unit = unit


class StateBytes:
    """Bytes per parameter under one sharding, replicated and sharded, by where they live."""

    def __init__(self, request: PlanRequest, layout: Layout) -> None:
        placed = placed_states(request, layout)
        copies = (placed.parameters, placed.gradients, placed.optimizer)
        self.replicated = sum([copy.replicated for copy in copies])
        self.sharded = sum([copy.sharded for copy in copies])
        self.host_replicated = placed.host.replicated
        self.host_sharded = placed.host.sharded
        self.frozen_replicated = placed.frozen.replicated
        self.frozen_sharded = placed.frozen.sharded
        self.frozen_host_sharded = placed.frozen_host.sharded
        self.gathers = states_of(request, layout).weights.replicated == 0


class SharedCosts:
    """Data-parallel seconds and the update, at (node, sharding)."""

    def __init__(self, per_microbatch: float, per_step: float, optimizer: float) -> None:
        self.per_microbatch = per_microbatch
        self.per_step = per_step
        self.optimizer = optimizer


def once_and_again(once: Affine, twice: Affine) -> tuple[float, float, float, float]:
    """Traffic without recomputation, per token and fixed, and what recomputation adds to each."""
    return (
        once.per_token,
        once.fixed,
        twice.per_token - once.per_token,
        twice.fixed - once.fixed,
    )


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
        self.hidden = float(model.hidden_size)
        override = model.params_override
        self.scale = override / max(1, counted_params(model)) if override else 1.0
        self.full_training = request.workload.task in ("pretrain", "sft")
        self.adapters = adapter_params_per_layer(model, request.workload.lora_rank)
        self.fragmentation = framework.fragmentation
        self.context = framework.context_bytes
        self.communicator = framework.communicator_bytes
        self.gathered_layers = framework.gathered_layers
        self.bucket = framework.bucket_bytes
        self.overlap_dp = framework.overlap_dp
        self.exposed_pp = 1 - framework.overlap_pp
        self.launch = request.efficiency.launch_seconds
        self.launch_routed = request.efficiency.launch_routed_seconds
        self.launch_collective = request.efficiency.launch_collective_seconds
        self.gpus_per_node = request.cluster.gpus_per_node
        self.world_size = request.cluster.world_size
        self.recomputes: list[str] = list(framework.kept)
        self.fractions: dict[str, float] = {
            kind: float(framework.recompute_flop_fraction[kind]) for kind in framework.kept
        }
        self._layers: dict[tuple[int, int, int, str, bool], LayerCosts] = {}
        self._compute: dict[tuple[int, int, str, bool], tuple[float, float, float, float]] = {}
        self._tp: dict[tuple[int, bool], tuple[float, float, float, float]] = {}
        self._cp: dict[tuple[int, int], tuple[float, float]] = {}
        self._ep: dict[tuple[int, int], tuple[float, float, float, float]] = {}
        self._passes: dict[tuple[int, int, int, str, str], PassCosts] = {}
        self._stage_params: dict[tuple[int, int, int], list[StageParams]] = {}
        self._first_stages: dict[tuple[int, int, int], MemoryStageParams] = {}
        self._heads: dict[tuple[int, str], tuple[float, float]] = {}
        self._stages: dict[int, list[StageKind]] = {}
        self._params: dict[tuple[int, int, bool], tuple[float, float]] = {}
        self._tables: dict[int, float] = {}
        self._activations: dict[tuple[int, int, str, str, bool], float] = {}
        self._logits: dict[tuple[int, int], float] = {}
        self._states: dict[tuple[str, str, bool, int], StateBytes] = {}
        self._shared: dict[tuple[int, int, int, int, str, int, str], SharedCosts] = {}
        self._p2p: dict[tuple[int, int, int, int], tuple[float, float]] = {}

    def layer(self, layout: Layout, *, routed: bool) -> LayerCosts:
        """Seconds of one layer."""
        key = (layout.tp, layout.cp, layout.ep, layout.precision, routed)
        found = self._layers.get(key)
        if found is None:
            found = self._layer(layout, routed=routed)
            self._layers[key] = found
        return found

    def _layer(self, layout: Layout, *, routed: bool) -> LayerCosts:
        key = (layout.tp, layout.ep if routed else 1, layout.precision, routed)
        compute = self._compute.get(key)
        if compute is None:
            seconds = layer_seconds(self.request, layout, routed=routed)
            compute = (
                seconds.forward.per_token,
                seconds.forward.fixed,
                seconds.backward.per_token,
                seconds.backward.fixed,
            )
            self._compute[key] = compute
        slope, fixed, again_slope, again_fixed = self.tp_traffic(layout, routed=routed)
        ring_slope, ring_fixed = self.cp_traffic(layout)
        slope, fixed = slope + ring_slope, fixed + ring_fixed
        if routed and layout.ep > 1:
            exchange = self.ep_traffic(layout)
            slope, fixed = slope + exchange[0], fixed + exchange[1]
            again_slope, again_fixed = again_slope + exchange[2], again_fixed + exchange[3]
        return LayerCosts(
            (compute[0], compute[1]),
            (compute[2], compute[3]),
            (slope, fixed),
            (again_slope, again_fixed),
        )

    def tp_traffic(self, layout: Layout, *, routed: bool) -> tuple[float, float, float, float]:
        """Tensor-parallel seconds of one layer, and what recomputation adds."""
        key = (layout.tp, routed and layout.ep > 1)
        found = self._tp.get(key)
        if found is None:
            once = tp_seconds_per_layer(self.request, layout, routed=routed, recompute_fraction=0.0)
            twice = tp_seconds_per_layer(
                self.request, layout, routed=routed, recompute_fraction=1.0
            )
            found = once_and_again(once, twice)
            self._tp[key] = found
        return found

    def cp_traffic(self, layout: Layout) -> tuple[float, float]:
        """Context-parallel seconds of one layer."""
        key = (layout.tp, layout.cp)
        found = self._cp.get(key)
        if found is None:
            ring = cp_seconds_per_layer(self.request, layout)
            found = (ring.per_token, ring.fixed)
            self._cp[key] = found
        return found

    def ep_traffic(self, layout: Layout) -> tuple[float, float, float, float]:
        """Expert-parallel seconds of one layer, and what recomputation adds."""
        key = (layout.tp, layout.ep)
        found = self._ep.get(key)
        if found is None:
            once = ep_seconds_per_layer(self.request, layout, recompute_fraction=0.0)
            twice = ep_seconds_per_layer(self.request, layout, recompute_fraction=1.0)
            found = once_and_again(once, twice)
            self._ep[key] = found
        return found

    def head(self, layout: Layout) -> tuple[float, float]:
        """Seconds of the output head, per token and fixed."""
        key = (layout.tp, layout.precision)
        found = self._heads.get(key)
        if found is None:
            seconds = head_seconds(self.request, layout)
            found = (seconds.per_token, seconds.fixed)
            self._heads[key] = found
        return found

    def stage_kinds(self, pp: int) -> list[StageKind]:
        """The stages of a pipeline, neighbours alike folded together."""
        found = self._stages.get(pp)
        if found is None:
            uneven = self.request.framework.uneven_pipeline
            found = self._stage_kinds(split_layers(self.num_layers, pp, uneven=uneven))
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

    def p2p(self, layout: Layout) -> tuple[float, float]:
        """Seconds of one stage crossing, per token and fixed."""
        key = (layout.tp, layout.pp, layout.cp, layout.dp)
        found = self._p2p.get(key)
        if found is None:
            one = p2p_seconds(self.request, layout)
            tokens = layout.microbatch_size * self.length / layout.cp
            double = p2p_seconds(self.request, doubled(layout))
            slope = (double - one) / tokens
            found = (slope, one - slope * tokens)
            self._p2p[key] = found
        return found

    def crossings(self, layout: Layout, tokens: float, microbatches: int) -> float:
        """Exposed seconds of all stage crossings of a step without interleaving."""
        if layout.pp == 1:
            return 0.0
        slope, fixed = self.p2p(layout)
        return (slope * tokens + fixed) * self.exposed_pp * (microbatches + layout.pp - 1)

    def shared(self, layout: Layout) -> SharedCosts:
        """Data-parallel traffic and update."""
        key = (
            layout.tp,
            layout.pp,
            layout.cp,
            layout.ep,
            layout.sharding,
            layout.dp_shard,
            layout.precision,
        )
        found = self._shared.get(key)
        if found is None:
            params = self.first_stage(layout)
            traffic = dp_traffic(self.request, layout, params)
            update = optimizer_seconds(self.request, layout, params)
            found = SharedCosts(traffic.per_microbatch, traffic.per_step, update)
            self._shared[key] = found
        return found

    def first_stage(self, layout: Layout) -> MemoryStageParams:
        """Parameters of the stage whose traffic and update `timing.shared_seconds` counts."""
        key = (layout.tp, layout.ep, layout.pp)
        found = self._first_stages.get(key)
        if found is None:
            found = stage_params(self.request, layout, 0)
            self._first_stages[key] = found
        return found

    def passes(self, layout: Layout, recompute: str) -> PassCosts:
        """Seconds of a microbatch under one recomputation."""
        key = (layout.tp, layout.cp, layout.ep, layout.precision, recompute)
        found = self._passes.get(key)
        if found is None:
            found = self._pass(layout, recompute)
            self._passes[key] = found
        return found

    def _pass(self, layout: Layout, recompute: str) -> PassCosts:
        fraction = self.fractions[recompute]
        again = 1.0 if recompute == "full" else 0.0
        launch = self.launch * (3 + fraction)
        if layout.tp > 1:
            launch += self.launch_collective * 2 * (2 + again)
        moe = self.num_layers - self.num_dense_layers
        nothing = (0.0, 0.0, 0.0, 0.0)
        return PassCosts(
            plain=self._once(layout, fraction, again, routed=False)
            if self.num_dense_layers
            else nothing,
            routed=self._once(layout, fraction, again, routed=True) if moe else nothing,
            head=self.head(layout),
            launch=(launch, self.launch_routed * (3 + fraction)),
            layers=(self.num_dense_layers, moe),
        )

    def _once(
        self, layout: Layout, fraction: float, again: float, *, routed: bool
    ) -> tuple[float, float, float, float]:
        """Compute and traffic of one layer, each per token and fixed."""
        costs = self.layer(layout, routed=routed)
        return (
            costs.forward_slope * (1 + fraction) + costs.backward_slope,
            costs.forward_fixed * (1 + fraction) + costs.backward_fixed,
            costs.traffic_slope + again * costs.again_slope,
            costs.traffic_fixed + again * costs.again_fixed,
        )

    def pipeline(
        self, layout: Layout, recompute: str, tokens: float, kinds: list[StageKind]
    ) -> tuple[float, float]:
        """Seconds of one microbatch on the slowest stage, and on all stages together."""
        costs = self.passes(layout, recompute)
        plain = costs.plain_slope * tokens + costs.plain_fixed
        plain_traffic = costs.plain_traffic * tokens + costs.plain_latency
        routed = costs.routed_slope * tokens + costs.routed_fixed
        routed_traffic = costs.routed_traffic * tokens + costs.routed_latency
        head = costs.head_slope * tokens + costs.head_fixed
        launch = costs.launch
        launch_routed = costs.launch + costs.launch_routed
        slowest = total = 0.0
        for kind in kinds:
            compute = kind.plain * plain + kind.routed * routed
            if kind.last:
                compute += head
            traffic = kind.plain * plain_traffic + kind.routed * routed_traffic
            seconds = compute + traffic
            launched = kind.plain * launch + kind.routed * launch_routed
            seconds = max(seconds, launched)
            slowest = max(slowest, seconds)
            total += seconds * kind.count
        return slowest, total

    def step(
        self,
        shared: SharedCosts,
        *,
        pp: int,
        microbatches: int,
        vpp: int,
        slowest: float,
        total: float,
        crossing: float,
    ) -> float:
        """Seconds of the step from its parts, as `timing.assemble` adds them."""
        seconds = slowest * microbatches + (total - slowest) / vpp
        if pp > 1:
            seconds += crossing * self.exposed_pp * vpp * (microbatches + pp - 1)
        return seconds + self.exposed(shared, microbatches=microbatches, slowest=slowest)

    def exposed(self, shared: SharedCosts, *, microbatches: int, slowest: float) -> float:
        """Data-parallel seconds that compute does not hide, and the update. At least zero."""
        overlap = self.overlap_dp
        within = max(shared.per_microbatch * (1 - overlap), shared.per_microbatch - slowest)
        after = max(shared.per_step * (1 - overlap), shared.per_step - slowest)
        return within * microbatches + after + shared.optimizer

    def with_shared(self, shared: SharedCosts, least: float, microbatches: int) -> float:
        """A lower bound on a step whose pipeline takes at least `least`, lowered for rounding.

        `exposed` is at least the part that never hides; and what a microbatch waits for its traffic
        beyond its compute, it and the compute together take the traffic's time.
        """
        part = 1 - self.overlap_dp
        wire = shared.per_microbatch * microbatches
        once = shared.per_step * part + shared.optimizer
        return max(least + wire * part, wire) * LOWERED + once * LOWERED

    def params(self, layout: Layout, *, routed: bool) -> tuple[float, float]:
        """Dense and routed parameters of one layer on one rank."""
        key = (layout.tp, layout.ep, routed)
        found = self._params.get(key)
        if found is None:
            found = layer_params(self.request.model, layout, routed=routed)
            self._params[key] = found
        return found

    def table(self, tp: int) -> float:
        """Parameters of one vocabulary table on one rank."""
        found = self._tables.get(tp)
        if found is None:
            multiple = self.request.framework.vocabulary_multiple
            entries = padded_vocabulary(self.request.model.vocab_size, tp, multiple)
            found = entries * self.hidden / tp
            self._tables[tp] = found
        return found

    def activation(self, layout: Layout, recompute: str, *, routed: bool) -> float:
        """Bytes one layer keeps per sequence of a microbatch."""
        key = (layout.tp, layout.cp, recompute, layout.precision, routed)
        found = self._activations.get(key)
        if found is None:
            kept = kept_of(self.request.framework, recompute, layout.precision)
            whole = activation_bytes_per_layer(self.request, layout, kept, routed=routed)
            found = whole / layout.microbatch_size
            self._activations[key] = found
        return found

    def logits(self, layout: Layout) -> float:
        """Bytes of the head and loss per sequence of a microbatch."""
        key = (layout.tp, layout.cp)
        found = self._logits.get(key)
        if found is None:
            found = logits_bytes(self.request, layout) / layout.microbatch_size
            self._logits[key] = found
        return found

    def states(self, layout: Layout) -> StateBytes:
        """Bytes per parameter under the layout's sharding."""
        offloads = self.request.workload.offload != "none"
        ranks = dense_shard_group(layout) if offloads else 0
        key = (layout.sharding, layout.precision, layout.pp > 1, ranks)
        found = self._states.get(key)
        if found is None:
            found = StateBytes(self.request, layout)
            self._states[key] = found
        return found

    def stage_params(self, layout: Layout) -> list[StageParams]:
        """Parameters of one rank of every stage kind of a pipeline."""
        key = (layout.tp, layout.ep, layout.pp)
        found = self._stage_params.get(key)
        if found is None:
            found = [self._kind_params(layout, kind) for kind in self.stage_kinds(layout.pp)]
            self._stage_params[key] = found
        return found

    def _kind_params(self, layout: Layout, kind: StageKind) -> StageParams:
        plain_dense = moe_dense = moe_routed = 0.0
        if kind.plain:
            plain_dense = self.params(layout, routed=False)[0]
        if kind.routed:
            moe_dense, moe_routed = self.params(layout, routed=True)
        table = self.table(layout.tp)
        dense = kind.plain * plain_dense + kind.routed * moe_dense + kind.tables * table
        if kind.last:
            dense += self.outside
        dense *= self.scale
        routed = kind.routed * moe_routed * self.scale
        unit = max(plain_dense, moe_dense + moe_routed, table if kind.tables else 0.0)
        if self.full_training:
            return StageParams(dense, routed, dense, routed, unit)
        adapters = (kind.plain + kind.routed) * self.adapters / layout.tp
        return StageParams(dense, routed, adapters, 0.0, unit)

    def held(self, layout: Layout) -> tuple[list[float], float]:
        """Device bytes of each stage kind that no microbatch changes; the most on one host rank."""
        states = self.states(layout)
        dense_group = dense_shard_group(layout)
        routed_group = expert_shard_group(layout)
        of_dense = states.replicated + states.sharded / dense_group
        of_routed = states.replicated + states.sharded / routed_group
        host_of_dense = states.host_replicated + states.host_sharded / dense_group
        host_of_routed = states.host_replicated + states.host_sharded / routed_group
        gathers = states.gathers and layout.dp_shard * layout.cp > 1
        buckets = layout.dp * layout.cp > 1
        base = self.context + num_groups(layout) * self.communicator
        devices: list[float] = []
        most = 0.0
        for stage in self.stage_params(layout):
            device = base + stage.trained_dense * of_dense + stage.trained_routed * of_routed
            host = stage.trained_dense * host_of_dense + stage.trained_routed * host_of_routed
            if not self.full_training:
                replicated, sharded = states.frozen_replicated, states.frozen_sharded
                device += stage.dense * (replicated + sharded / dense_group)
                device += stage.routed * (replicated + sharded / routed_group)
                host += stage.dense * states.frozen_host_sharded / dense_group
                host += stage.routed * states.frozen_host_sharded / routed_group
            buffers = self.gathered_layers * stage.unit * SIXTEEN_BIT if gathers else 0.0
            if buckets:
                buffers += min(self.bucket, 4 * (stage.trained_dense + stage.trained_routed))
            devices.append(device + buffers * (1 + self.fragmentation))
            most = max(most, host)
        return devices, most

    def kept(self, layout: Layout, kind: StageKind, recompute: str) -> tuple[float, float]:
        """Device bytes of one sequence on a stage: per microbatch in flight, and once."""
        kept = once = 0.0
        if kind.plain:
            kept += kind.plain * self.activation(layout, recompute, routed=False)
        if kind.routed:
            kept += kind.routed * self.activation(layout, recompute, routed=True)
        if recompute == "full":
            once += self.activation(layout, "none", routed=kind.routed > 0)
        if kind.last:
            once += self.logits(layout)
        return kept * (1 + self.fragmentation), once * (1 + self.fragmentation)

    def worst_bytes(self, layout: Layout) -> tuple[float, float]:
        """Device bytes of the fullest stage, and host bytes of a node, of a whole layout."""
        microbatches = self.batch // layout.dp // layout.microbatch_size
        device = 0.0
        kinds = self.stage_kinds(layout.pp)
        held, host = self.held(layout)
        for place in range(len(kinds)):
            kind = kinds[place]
            flight = in_flight(layout.pp, layout.vpp, kind.index, microbatches)
            kept, once = self.kept(layout, kind, layout.recompute)
            device = max(device, held[place] + layout.microbatch_size * (kept * flight + once))
        return device, host * self.gpus_per_node


def doubled(layout: Layout) -> Layout:
    """`layout` with twice the microbatch."""
    return Layout(
        tp=layout.tp,
        pp=layout.pp,
        vpp=layout.vpp,
        cp=layout.cp,
        ep=layout.ep,
        dp=layout.dp,
        dp_shard=layout.dp_shard,
        sharding=layout.sharding,
        sequence_parallel=layout.sequence_parallel,
        microbatch_size=2 * layout.microbatch_size,
        recompute=layout.recompute,
        precision=layout.precision,
    )
