"""A model's `config.json` becomes a `ModelArchitecture`, parameters exact to the digit.

One reader per family, in the table `FAMILIES`. Sizes every published config states must be there.
A field that may be absent takes the default of the transformers library, release 4.57.1,
`src/transformers/models/<family>/configuration_<family>.py`; the vectors each reader counts (norms,
biases, position tables) are those of `modeling_<family>.py` beside it.

Letters: h hidden size, f feed-forward size, d head size, q and kv the widths of all query and all
key heads, V vocabulary, E experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from app.catalog.reading import (
    MAX_FFN_SIZE,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_VOCABULARY,
    Fields,
    is_number,
    nearest,
    quoted,
    shown,
)
from app.planner.architecture import (
    LatentAttention,
    MixtureOfExperts,
    ModelArchitecture,
    RotaryPositions,
)
from app.planner.intent import FieldError

LLAMA_3_SCALING: Final = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""What Llama 3.1, 3.2 and 3.3 have in common in `rope_scaling`: all but the factor."""
OPT_POSITION_OFFSET: Final = 2
"""OPT keeps two position rows more than it has positions (modeling_opt.py)."""


def architecture_from_config(
    config: Any, name: str, *, path: str = "hf_config"
) -> ModelArchitecture | tuple[FieldError, ...]:
    """The architecture a `config.json` describes, or everything that is wrong with it.

    `path` is where the config stood; it leads the path of every error.
    """
    if not isinstance(config, Mapping):
        message = f"`{path}` must be the object of a config.json, not {shown(config)}"
        return (FieldError(path=path, value=config, message=message),)
    family = config.get("model_type")
    reader = FAMILIES.get(family) if isinstance(family, str) else None
    if reader is None:
        return (_unknown_family(family, path),)
    fields = Fields(config, path=path)
    model = reader(fields, name)
    if fields.errors:
        return tuple(fields.errors)
    return replace(model, rotary=_rotary(config))


def _rotary(config: Mapping[str, Any]) -> RotaryPositions | None:
    """What the config states of rotary positions; `None` for other kinds, or nothing."""
    base: Any = config.get("rope_theta")
    scaling = config.get("rope_scaling")
    is_whole = is_number(base) and base >= 1 and base == int(base)
    if not is_whole or config.get("partial_rotary_factor", 1) != 1:
        return None
    if scaling is None:
        return RotaryPositions(base=int(base))
    if not isinstance(scaling, Mapping) or not is_number(scaling.get("factor")):
        return None
    rest = {key: value for key, value in scaling.items() if key != "factor"}
    is_known = rest == LLAMA_3_SCALING and scaling["factor"] > 1
    return RotaryPositions(base=int(base), factor=scaling["factor"]) if is_known else None


def _unknown_family(family: Any, path: str) -> FieldError:
    known = f"known are {quoted(FAMILIES)}"
    where = f"{path}.model_type"
    if not isinstance(family, str):
        message = f"`model_type` must name the model's family; {known}"
        return FieldError(path=where, value=family, message=message)
    near = nearest(family, FAMILIES, count=1)
    guess = f"did you mean `{near[0]}`? " if near else ""
    message = (
        f"`model_type` {shown(family)} is not a family this can count; {guess}{known}; "
        "any other transformer can be given as an `architecture`"
    )
    return FieldError(path=where, value=family, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What nearly all decoders state."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    positions: int
    tied: bool

    @property
    def query(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def attention_biases(self) -> int:
        """Biases of the query, key, value and output projections."""
        return self.query + 2 * self.kv + self.hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defaults:
    """What a family's configuration class takes for an absent field; 0 derives it."""

    kv_heads: int = 0
    head_dim: int = 0
    positions: int
    tied: bool = False


def _shape(fields: Fields, defaults: _Defaults) -> _Shape:
    hidden = fields.whole("hidden_size", "n_embd", "n_embed", "d_model")
    heads = fields.whole("num_attention_heads", "n_head", "n_heads")
    kv_heads = fields.whole(
        "num_key_value_heads", "num_kv_heads", default=defaults.kv_heads or heads
    )
    return _Shape(
        hidden=hidden,
        layers=fields.whole("num_hidden_layers", "n_layer", "n_layers", high=MAX_LAYERS),
        heads=heads,
        kv_heads=_dividing_kv_heads(fields, heads, kv_heads),
        head_dim=_head_dim(fields, hidden, heads, defaults.head_dim),
        vocabulary=fields.whole("vocab_size", high=MAX_VOCABULARY),
        positions=fields.whole(
            "max_position_embeddings",
            "n_positions",
            "seq_length",
            "max_seq_len",
            high=MAX_TOKENS,
            default=defaults.positions,
        ),
        tied=fields.flag("tie_word_embeddings", default=defaults.tied),
    )


def _dividing_kv_heads(fields: Fields, heads: int, kv_heads: int) -> int:
    if heads % kv_heads and not fields.errors:
        message = (
            f"`num_key_value_heads` {kv_heads} must divide the {heads} of `num_attention_heads`"
        )
        fields.wrong("num_key_value_heads", kv_heads, message)
        return heads
    return kv_heads


def _head_dim(fields: Fields, hidden: int, heads: int, default: int) -> int:
    if default or fields.has("head_dim"):
        return fields.whole("head_dim", default=default or 1)
    if hidden % heads and not fields.errors:  # a wrong size is said once
        message = (
            f"`hidden_size` {hidden} must be a multiple of the {heads} of `num_attention_heads`, "
            "or `head_dim` must be given"
        )
        fields.wrong("head_dim", None, message)
    return max(1, hidden // heads)


def _decoder(
    shape: _Shape,
    name: str,
    *,
    ffn: int,
    vectors: int,
    extra: int,
    gated: bool = True,
    **more: Any,
) -> ModelArchitecture:
    return ModelArchitecture(
        name=name,
        hidden_size=shape.hidden,
        ffn_hidden_size=ffn,
        num_layers=shape.layers,
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocabulary,
        gated_mlp=gated,
        tied_embeddings=shape.tied,
        attention="mha" if shape.kv_heads == shape.heads else "gqa",
        max_sequence_length=shape.positions,
        vector_params_per_layer=vectors,
        extra_params=extra,
        **more,
    )


def _ffn(fields: Fields, *names: str, default: int | None = None) -> int:
    names = names or ("intermediate_size",)
    if default is None:
        return fields.whole(*names, high=MAX_FFN_SIZE)
    return fields.whole(*names, high=MAX_FFN_SIZE, default=default)


def _window(fields: Fields, layers: int, *, default: int, sliding: int) -> dict[str, Any]:
    """The sliding window and how many layers use it: by `layer_types`, else `sliding` of them."""
    window = fields.whole("sliding_window", high=MAX_TOKENS, low=0, default=default)
    if "sliding_window" in fields.values and fields.values["sliding_window"] is None:
        window = 0
    types = fields.values.get("layer_types")
    if types is not None:
        if not isinstance(types, (list, tuple)) or len(types) != layers:
            message = f"`layer_types` must be a list of {layers} names, one for each layer"
            fields.wrong("layer_types", types, message)
        else:
            sliding = sum(1 for one in types if one == "sliding_attention")
    if not window or not sliding:
        return {}
    return {"sliding_window": window, "num_sliding_layers": min(sliding, layers)}


def _llama(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(positions=2048))
    ffn = _ffn(fields)
    vectors = 2 * shape.hidden
    if fields.flag("attention_bias", default=False):
        vectors += shape.attention_biases
    if fields.flag("mlp_bias", default=False):
        vectors += 2 * ffn + shape.hidden
    return _decoder(shape, name, ffn=ffn, vectors=vectors, extra=shape.hidden)


def _mistral(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(kv_heads=8, positions=131072))
    window = _window(fields, shape.layers, default=4096, sliding=shape.layers)
    return _decoder(
        shape, name, ffn=_ffn(fields), vectors=2 * shape.hidden, extra=shape.hidden, **window
    )


def _mixtral(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(kv_heads=8, positions=131072))
    ffn = _ffn(fields)
    moe = _experts(fields, "num_local_experts", 8, top_k=2, ffn=ffn, layers=shape.layers)
    window = _window(fields, shape.layers, default=0, sliding=shape.layers)
    return _decoder(
        shape, name, ffn=ffn, vectors=2 * shape.hidden, extra=shape.hidden, moe=moe, **window
    )


def _experts(
    fields: Fields, key: str, default: int, *, top_k: int, ffn: int, layers: int, shared: int = 0
) -> MixtureOfExperts | None:
    """The routed experts under `key`, `None` if no layer has them. `default` 0: must be given."""
    experts = fields.whole(key, default=default) if default else fields.whole(key)
    chosen = (
        fields.whole("num_experts_per_tok", default=top_k)
        if top_k
        else fields.whole("num_experts_per_tok")
    )
    if chosen > experts:
        message = f"`num_experts_per_tok` must be less than or equal to the {experts} of `{key}`"
        fields.wrong("num_experts_per_tok", chosen, message)
    if not layers:
        return None
    return MixtureOfExperts(
        num_experts=experts,
        top_k=chosen,
        expert_ffn_hidden_size=ffn,
        shared_expert_ffn_hidden_size=shared,
        num_moe_layers=layers,
    )


def _late_window(fields: Fields, layers: int) -> dict[str, Any]:
    """Qwen: off by default, else the layers from `max_window_layers` on."""
    if not fields.flag("use_sliding_window", default=False):
        return {}
    first = fields.whole("max_window_layers", low=0, high=MAX_LAYERS, default=28)
    return _window(fields, layers, default=4096, sliding=max(0, layers - first))


def _qwen2(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(kv_heads=32, positions=32768))
    vectors = 2 * shape.hidden + shape.query + 2 * shape.kv
    window = _late_window(fields, shape.layers)
    return _decoder(shape, name, ffn=_ffn(fields), vectors=vectors, extra=shape.hidden, **window)


def _qwen3_vectors(fields: Fields, shape: _Shape) -> int:
    """Two norms of the layer, one each for queries and keys, and biases where asked."""
    vectors = 2 * shape.hidden + 2 * shape.head_dim
    return vectors + (shape.attention_biases if fields.flag("attention_bias", default=False) else 0)


def _qwen3(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(kv_heads=32, head_dim=128, positions=32768))
    vectors = _qwen3_vectors(fields, shape)
    window = _late_window(fields, shape.layers)
    return _decoder(shape, name, ffn=_ffn(fields), vectors=vectors, extra=shape.hidden, **window)


def _qwen3_moe(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(kv_heads=4, positions=32768))
    step = fields.whole("decoder_sparse_step", high=MAX_LAYERS, default=1)
    dense = _dense_layers(fields, shape.layers)
    routed = sum(1 for i in range(shape.layers) if i not in dense and (i + 1) % step == 0)
    width = _ffn(fields, "moe_intermediate_size")
    moe = _experts(fields, "num_experts", 128, top_k=8, ffn=width, layers=routed)
    # Used only by layers without experts; configs of all-MoE models may leave it out.
    ffn = _ffn(fields) if routed < shape.layers else _ffn(fields, default=width)
    vectors = _qwen3_vectors(fields, shape)
    return _decoder(shape, name, ffn=ffn, vectors=vectors, extra=shape.hidden, moe=moe)


def _dense_layers(fields: Fields, layers: int) -> frozenset[int]:
    value = fields.values.get("mlp_only_layers")
    if value is None:
        return frozenset()
    if isinstance(value, (list, tuple)) and all(
        isinstance(one, int) and 0 <= one < layers for one in value
    ):
        return frozenset(value)
    message = f"`mlp_only_layers` must be a list of layer numbers below {layers}"
    fields.wrong("mlp_only_layers", value, message)
    return frozenset()


def _deepseek_v2(fields: Fields, name: str) -> ModelArchitecture:
    return _deepseek(fields, name, first_dense=0, shared=2, router_biases=False)


def _deepseek_v3(fields: Fields, name: str) -> ModelArchitecture:
    return _deepseek(fields, name, first_dense=3, shared=1, router_biases=True)


def _deepseek(
    fields: Fields, name: str, *, first_dense: int, shared: int, router_biases: bool
) -> ModelArchitecture:
    """V3 adds one bias per expert that balances the load; it is stored and counted."""
    latent = _latent(fields)
    query_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    # `head_dim` in these configs is the rotary part alone; the latent sizes decide.
    plain = Fields({k: v for k, v in fields.values.items() if k != "head_dim"}, path=fields.path)
    plain.errors = fields.errors
    shape = _shape(plain, _Defaults(head_dim=query_dim, positions=4096))
    width = _ffn(fields, "moe_intermediate_size")
    routed = _routed_after(fields, shape.layers, first_dense)
    count = fields.whole("n_shared_experts", low=0, default=shared)
    moe = _experts(
        fields, "n_routed_experts", 0, top_k=0, ffn=width, layers=routed, shared=count * width
    )
    vectors = 2 * shape.hidden + latent.q_lora_rank + latent.kv_lora_rank
    if fields.flag("attention_bias", default=False):
        vectors += latent.q_lora_rank + latent.kv_lora_rank + latent.qk_rope_head_dim + shape.hidden
    extra = shape.hidden
    if router_biases and moe is not None:
        extra += routed * moe.num_experts
    model = _decoder(
        shape, name, ffn=_ffn(fields), vectors=vectors, extra=extra, moe=moe, latent=latent
    )
    return replace(model, attention="mla")


def _latent(fields: Fields) -> LatentAttention:
    """`q_lora_rank` null projects queries directly (DeepSeek-V2-Lite)."""
    stated_null = "q_lora_rank" in fields.values and fields.values["q_lora_rank"] is None
    return LatentAttention(
        q_lora_rank=0 if stated_null else fields.whole("q_lora_rank", low=0, default=1536),
        kv_lora_rank=fields.whole("kv_lora_rank", default=512),
        qk_nope_head_dim=fields.whole("qk_nope_head_dim", default=128),
        qk_rope_head_dim=fields.whole("qk_rope_head_dim", default=64),
        v_head_dim=fields.whole("v_head_dim", default=128),
    )


def _routed_after(fields: Fields, layers: int, default: int) -> int:
    """Layers with experts: every `moe_layer_freq`-th from `first_k_dense_replace` on."""
    first = fields.whole("first_k_dense_replace", low=0, high=MAX_LAYERS, default=default)
    every = fields.whole("moe_layer_freq", high=MAX_LAYERS, default=1)
    return sum(1 for i in range(layers) if i >= first and i % every == 0)


def _gemma2(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(kv_heads=4, head_dim=256, positions=8192, tied=True))
    vectors = 4 * shape.hidden
    if fields.flag("attention_bias", default=False):
        vectors += shape.attention_biases
    window = _window(fields, shape.layers, default=4096, sliding=-(-shape.layers // 2))
    return _decoder(shape, name, ffn=_ffn(fields), vectors=vectors, extra=shape.hidden, **window)


def _phi3(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(positions=4096))
    window = _window(fields, shape.layers, default=0, sliding=shape.layers)
    return _decoder(
        shape, name, ffn=_ffn(fields), vectors=2 * shape.hidden, extra=shape.hidden, **window
    )


def _nemotron(fields: Fields, name: str) -> ModelArchitecture:
    """Squared ReLU, no gate; norms have a bias (LayerNorm1P)."""
    shape = _shape(fields, _Defaults(positions=4096))
    ffn = _ffn(fields)
    vectors = 4 * shape.hidden
    if fields.flag("attention_bias", default=False):
        vectors += shape.attention_biases
    if fields.flag("mlp_bias", default=False):
        vectors += ffn + shape.hidden
    return _decoder(shape, name, ffn=ffn, vectors=vectors, extra=2 * shape.hidden, gated=False)


def _layernorm_vectors(hidden: int, ffn: int) -> int:
    """Two LayerNorms (4h), biases of q, k, v and output (4h), of the MLP (f + h)."""
    return 9 * hidden + ffn


def _gpt_neox(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(positions=2048))
    ffn = _ffn(fields)
    vectors = _layernorm_vectors(shape.hidden, ffn)
    if not fields.flag("attention_bias", default=True):
        vectors -= 4 * shape.hidden
    return _decoder(shape, name, ffn=ffn, vectors=vectors, extra=2 * shape.hidden, gated=False)


def _gpt2(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(positions=1024, tied=True))
    ffn = _ffn(fields, "n_inner", "intermediate_size", default=4 * shape.hidden)
    vectors = _layernorm_vectors(shape.hidden, ffn)
    extra = (shape.positions + 2) * shape.hidden
    return _decoder(shape, name, ffn=ffn, vectors=vectors, extra=extra, gated=False)


def _bloom(fields: Fields, name: str) -> ModelArchitecture:
    """ALiBi: no position table. The embedding has a LayerNorm of its own."""
    shape = _shape(fields, _Defaults(positions=2048, tied=True))
    ffn = _ffn(fields, "n_inner", default=4 * shape.hidden)
    vectors = _layernorm_vectors(shape.hidden, ffn)
    return _decoder(shape, name, ffn=ffn, vectors=vectors, extra=4 * shape.hidden, gated=False)


def _falcon(fields: Fields, name: str) -> ModelArchitecture:
    """Published checkpoints store an output head of their own, so an absent tie means untied.

    Deviates from the library's default (tied) to meet the published 179,522,565,120 of Falcon-180B.
    """
    shape = _shape(fields, _Defaults(positions=2048))
    new = fields.flag("new_decoder_architecture", default=False)
    if not new:
        # Before the new decoder `num_kv_heads` is ignored: one, or as many as heads.
        one = fields.flag("multi_query", default=True)
        shape = replace(shape, kv_heads=1 if one else shape.heads)
    ffn = _ffn(fields, "ffn_hidden_size", default=4 * shape.hidden)
    vectors = 2 * shape.hidden * _falcon_norms(fields, new=new)
    if fields.flag("bias", default=False):
        vectors += shape.attention_biases + ffn + shape.hidden
    return _decoder(shape, name, ffn=ffn, vectors=vectors, extra=2 * shape.hidden, gated=False)


def _falcon_norms(fields: Fields, *, new: bool) -> int:
    """LayerNorms of one layer."""
    if new:
        return fields.whole("num_ln_in_parallel_attn", high=2, default=2)
    return 1 if fields.flag("parallel_attn", default=True) else 2


def _opt(fields: Fields, name: str) -> ModelArchitecture:
    shape = _shape(fields, _Defaults(positions=2048, tied=True))
    h = shape.hidden
    ffn = _ffn(fields, "ffn_dim")
    vectors = _layernorm_vectors(h, ffn)
    if not fields.flag("enable_bias", default=True):
        vectors = 4 * h
    ends_with_norm = fields.flag("do_layer_norm_before", default=True) and not fields.flag(
        "_remove_final_layer_norm", default=False
    )
    extra = (shape.positions + OPT_POSITION_OFFSET) * h + (2 * h if ends_with_norm else 0)
    width = fields.whole("word_embed_proj_dim", default=h)
    model = _decoder(shape, name, ffn=ffn, vectors=vectors, extra=extra, gated=False)
    if width == h:
        return model
    # OPT-350m looks words up in a narrower table and projects in and out.
    narrow = model.params - shape.vocabulary * h + shape.vocabulary * width + 2 * width * h
    return replace(model, params_override=narrow)


def _mpt(fields: Fields, name: str) -> ModelArchitecture:
    """ALiBi by default; without it a learned position table (llm-foundry)."""
    shape = _shape(fields, _Defaults(positions=2048, tied=True))
    h = shape.hidden
    ffn = h * fields.whole("expansion_ratio", high=64, default=4)
    bare = fields.flag("no_bias", default=True)
    alibi = True
    if fields.has("attn_config"):
        alibi = fields.nested("attn_config").flag("alibi", default=True)
    extra = (h if bare else 2 * h) + (0 if alibi else shape.positions * h)
    vectors = 2 * h if bare else _layernorm_vectors(h, ffn)
    return _decoder(shape, name, ffn=ffn, vectors=vectors, extra=extra, gated=False)


def _gpt_oss(fields: Fields, name: str) -> ModelArchitecture:
    """Biases everywhere, one attention sink per head, sliding window in every second layer.

    The published active count leaves the input table out, so this one does too.
    """
    shape = _shape(fields, _Defaults(kv_heads=8, head_dim=64, positions=131072))
    ffn = _ffn(fields)
    moe = _experts(fields, "num_local_experts", 128, top_k=4, ffn=ffn, layers=shape.layers)
    experts = moe.num_experts if moe is not None else 0
    model = _decoder(
        shape,
        name,
        ffn=ffn,
        vectors=2 * shape.hidden + shape.attention_biases + shape.heads,
        extra=shape.hidden + shape.layers * experts,
        moe=moe,
        vector_params_per_expert=2 * ffn + shape.hidden,
        **_window(fields, shape.layers, default=128, sliding=-(-shape.layers // 2)),
    )
    return replace(model, active_params_override=model.active_params - model.embedding_params)


def _classes(fields: Fields) -> str:
    """The names under `architectures`, joined."""
    value = fields.values.get("architectures")
    return " ".join(str(one)[:80] for one in value) if isinstance(value, list) else ""


def _bert(fields: Fields, name: str) -> ModelArchitecture:
    """The encoder with its pooler, or with the head of masked-language modelling."""
    shape = _shape(fields, _Defaults(positions=512, tied=True))
    h = shape.hidden
    ffn = _ffn(fields)
    types = fields.whole("type_vocab_size", default=2)
    extra = (shape.positions + types + 2) * h
    classes = _classes(fields)
    masked_head = h * h + h + 2 * h + shape.vocabulary
    pooler = h * h + h
    if "ForPreTraining" in classes:
        extra += masked_head + pooler + 2 * h + 2
    else:
        extra += masked_head if "ForMaskedLM" in classes else pooler
    vectors = _layernorm_vectors(h, ffn)
    return _decoder(shape, name, ffn=ffn, vectors=vectors, extra=extra, gated=False, causal=False)


def _vit(fields: Fields, name: str) -> ModelArchitecture:
    """No vocabulary: a sequence is the image's patches and one class token."""
    fields = _with_vocabulary(fields, 1)
    shape = _shape(fields, _Defaults(positions=1))
    h = shape.hidden
    ffn = _ffn(fields)
    patches, patch_values = _patches(fields, default_patch=16)
    extra = patch_values * h + h + h + (patches + 1) * h + 2 * h
    extra += _classifier(fields, h)
    vectors = _layernorm_vectors(h, ffn)
    if not fields.flag("qkv_bias", default=True):
        vectors -= 3 * h
    model = _decoder(shape, name, ffn=ffn, vectors=vectors, extra=extra, gated=False, causal=False)
    return replace(model, vocab_size=0, tied_embeddings=True, max_sequence_length=patches + 1)


def _classifier(fields: Fields, hidden: int) -> int:
    """Parameters after the encoder: a classifier, or the pooler of the bare model."""
    if "ForImageClassification" not in _classes(fields):
        return hidden * hidden + hidden
    named = fields.values.get("id2label")
    default = len(named) if isinstance(named, Mapping) and named else 2
    labels = fields.whole("num_labels", default=default)
    return hidden * labels + labels


def _patches(fields: Fields, *, default_patch: int) -> tuple[int, int]:
    """Patches of one image and values of one patch."""
    image = fields.whole("image_size", high=2**14, default=224)
    patch = fields.whole("patch_size", high=2**14, default=default_patch)
    channels = fields.whole("num_channels", high=2**10, default=3)
    if image % patch:
        fields.wrong("patch_size", patch, f"`patch_size` {patch} must divide `image_size` {image}")
    return (image // patch) ** 2, channels * patch * patch


def _with_vocabulary(fields: Fields, vocabulary: int) -> Fields:
    inner = Fields({**fields.values, "vocab_size": vocabulary}, path=fields.path)
    inner.errors = fields.errors
    return inner


def _clip_text(fields: Fields, name: str) -> ModelArchitecture:
    """The text tower alone; it reads causally and has no head."""
    shape = replace(_shape(_with_default_vocabulary(fields), _Defaults(positions=77)), tied=True)
    ffn = _ffn(fields)
    extra = (shape.positions + 2) * shape.hidden
    vectors = _layernorm_vectors(shape.hidden, ffn)
    return _decoder(shape, name, ffn=ffn, vectors=vectors, extra=extra, gated=False)


def _with_default_vocabulary(fields: Fields) -> Fields:
    return fields if fields.has("vocab_size") else _with_vocabulary(fields, 49408)


def _clip_vision(fields: Fields, name: str) -> ModelArchitecture:
    """The image tower alone: patches without bias, LayerNorms before and after the layers."""
    fields = _with_vocabulary(fields, 1)
    shape = _shape(fields, _Defaults(positions=1))
    h = shape.hidden
    ffn = _ffn(fields)
    patches, patch_values = _patches(fields, default_patch=32)
    extra = patch_values * h + h + (patches + 1) * h + 4 * h
    vectors = _layernorm_vectors(h, ffn)
    model = _decoder(shape, name, ffn=ffn, vectors=vectors, extra=extra, gated=False, causal=False)
    return replace(model, vocab_size=0, tied_embeddings=True, max_sequence_length=patches + 1)


def _clip(fields: Fields, name: str) -> ModelArchitecture:
    """Both towers as one: the layers are the image tower's, the text tower is counted beside them.

    Ignores: the time and activations of the text tower, about a tenth of the work.
    """
    text = _clip_text(fields.nested("text_config"), name)
    vision = _clip_vision(fields.nested("vision_config"), name)
    width = fields.whole("projection_dim", default=512)
    joined = (text.hidden_size + vision.hidden_size) * width + 1
    return replace(vision, extra_params=vision.extra_params + text.params + joined)


Reader = Callable[[Fields, str], ModelArchitecture]

FAMILIES: Final[Mapping[str, Reader]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "kimi_k2": _deepseek_v3,
    "gemma2": _gemma2,
    "phi3": _phi3,
    "nemotron": _nemotron,
    "gpt_neox": _gpt_neox,
    "gpt2": _gpt2,
    "falcon": _falcon,
    "bloom": _bloom,
    "opt": _opt,
    "mpt": _mpt,
    "gpt_oss": _gpt_oss,
    "bert": _bert,
    "vit": _vit,
    "clip": _clip,
    "clip_text_model": _clip_text,
    "clip_vision_model": _clip_vision,
}
"""`model_type` of a config.json, and who reads it. `kimi_k2` has DeepSeek-V3's fields."""
