"""An `architecture` mapping becomes a `ModelArchitecture`; a partial one is completed, and said so.

Keys are the fields of `ModelArchitecture` with `moe`, `latent` and `rotary` nested. `params` and
`active_params` override the counts. Null is the same as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from app.catalog.reading import (
    MAX_FFN_SIZE,
    MAX_LAYERS,
    MAX_PARAMS,
    MAX_SIZE,
    MAX_TOKENS,
    MAX_VOCABULARY,
    Fields,
    is_number,
    shown,
    unknown_keys,
)
from app.planner.architecture import (
    Attention,
    LatentAttention,
    MixtureOfExperts,
    ModelArchitecture,
    RotaryPositions,
)
from app.planner.intent import FieldError

PATH: Final = "architecture"
MAX_FFN_RATIO: Final = 64
"""The widest derived feed-forward layer, in hidden sizes. Published dense models stay below 9; a
mixture of experts counted as dense reaches about 30."""

_MODEL_KEYS: Final = frozenset(
    {
        "name",
        "hidden_size",
        "ffn_hidden_size",
        "num_layers",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "vocab_size",
        "gated_mlp",
        "tied_embeddings",
        "attention",
        "latent",
        "moe",
        "rotary",
        "causal",
        "sliding_window",
        "num_sliding_layers",
        "max_sequence_length",
        "vector_params_per_layer",
        "vector_params_per_expert",
        "extra_params",
        "params",
        "active_params",
    }
)
_MOE_KEYS: Final = frozenset(MixtureOfExperts.__dataclass_fields__)
_ROTARY_KEYS: Final = frozenset(RotaryPositions.__dataclass_fields__)
_LATENT_KEYS: Final = frozenset(LatentAttention.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureDefaults:
    """What a partial architecture is completed with."""

    vocab_size: int
    ffn_multiple: int
    tied_embeddings_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A completed architecture and the sentences that say what was not given."""

    model: ModelArchitecture
    assumptions: tuple[str, ...]


def read_architecture(shape: Any, *, name: str) -> ModelArchitecture | tuple[FieldError, ...]:
    """The architecture of a mapping that states every size, or everything wrong with it."""
    fields = _fields(shape)
    if isinstance(fields, tuple):
        return fields
    for key in ("ffn_hidden_size", "num_kv_heads", "head_dim", "vocab_size"):
        if fields.values.get(key) is None:
            fields.wrong(key, None, f"`{key}` must be given")
    return _built(fields, name, _ffn(fields), _vocabulary(fields, 0))


def complete_architecture(
    shape: Any, *, name: str, defaults: ArchitectureDefaults
) -> Completed | tuple[FieldError, ...]:
    """The architecture of a mapping that states at least hidden size, layers and heads."""
    fields = _fields(shape)
    if isinstance(fields, tuple):
        return fields
    said: list[str] = []
    vocabulary = _vocabulary(fields, defaults.vocab_size)
    if fields.values.get("vocab_size") is None:
        said.append(f"vocabulary of {vocabulary} assumed")
        fields = _with_ties(fields, vocabulary, defaults, said)
    if not _whole(fields, "num_kv_heads", low=0, default=0):
        said.append("as many key/value heads as attention heads assumed")
    ffn = _ffn(fields) or _derived_ffn(fields, name, vocabulary, defaults, said)
    model = _built(fields, name, ffn, vocabulary)
    if isinstance(model, ModelArchitecture):
        return Completed(model=model, assumptions=tuple(said))
    return model


def _fields(shape: Any) -> Fields | tuple[FieldError, ...]:
    if not isinstance(shape, Mapping):
        message = f"`architecture` must be an object, not {shown(shape)}"
        return (FieldError(path=PATH, value=shape, message=message),)
    fields = Fields(shape, path=PATH)
    _only(fields, _MODEL_KEYS)
    return fields


def _only(fields: Fields, known: frozenset[str]) -> None:
    fields.errors += unknown_keys(fields.values, sorted(known), prefix=f"{fields.path}.")


def _whole(fields: Fields, key: str, *, low: int = 1, default: int | None = None) -> int:
    high = {
        "num_layers": MAX_LAYERS,
        "vocab_size": MAX_VOCABULARY,
        "ffn_hidden_size": MAX_FFN_SIZE,
    }.get(key, MAX_SIZE)
    if default is None:
        return fields.whole(key, high=high, low=low)
    return fields.whole(key, high=high, low=low, default=default)


def _ffn(fields: Fields) -> int:
    """The stated feed-forward width, 0 when it is not."""
    return _whole(fields, "ffn_hidden_size", low=0, default=0)


def _vocabulary(fields: Fields, default: int) -> int:
    value = fields.values.get("vocab_size")
    if value == 0 and not isinstance(value, bool):
        return 0
    return _whole(fields, "vocab_size", default=default)


def _params(fields: Fields, key: str) -> int:
    """An overriding count, 0 when there is none. JSON may write it as 7e9."""
    value = fields.values.get(key)
    if isinstance(value, float) and value.is_integer():
        fields = _replaced(fields, **{key: int(value)})
    return fields.whole(key, high=MAX_PARAMS, default=0)


def _replaced(fields: Fields, **values: Any) -> Fields:
    changed = Fields({**fields.values, **values}, path=fields.path)
    changed.errors = fields.errors
    return changed


def _built(
    fields: Fields, name: str, ffn: int, vocabulary: int
) -> ModelArchitecture | tuple[FieldError, ...]:
    """The model, its counts overridden only where they differ from what the sizes give."""
    model = _sized(fields, name, ffn, vocabulary)
    params, active = _params(fields, "params"), _params(fields, "active_params")
    if active > (params or model.params):
        message = "`active_params` must be less than or equal to `params`"
        fields.wrong("active_params", active, message)
    if fields.errors:
        # A field may be read more than once.
        return tuple({(error.path, error.message): error for error in fields.errors}.values())
    if params and params != model.params:
        # With experts the active count is overridden too, in the proportion of the sizes.
        scaled = round(model.active_params * params / model.params) if model.moe else 0
        model = replace(model, params_override=params, active_params_override=scaled)
    if active and active != model.active_params:
        model = replace(model, active_params_override=active)
    return model


def _sized(fields: Fields, name: str, ffn: int, vocabulary: int) -> ModelArchitecture:
    hidden, heads = _whole(fields, "hidden_size"), _whole(fields, "num_heads")
    layers = _whole(fields, "num_layers")
    kv_heads = _whole(fields, "num_kv_heads", low=0, default=heads) or heads
    if heads % kv_heads and not fields.errors:  # a wrong size is said once
        message = f"`num_kv_heads` {kv_heads} must divide the {heads} of `num_heads`"
        fields.wrong("num_kv_heads", kv_heads, message)
    latent = _latent(fields)
    return ModelArchitecture(
        name=name,
        hidden_size=hidden,
        ffn_hidden_size=max(1, ffn),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=_head_dim(fields, hidden, heads, latent),
        vocab_size=vocabulary,
        gated_mlp=fields.flag("gated_mlp", default=True),
        tied_embeddings=fields.flag("tied_embeddings", default=False),
        attention=_attention(fields, latent, all_heads=kv_heads == heads),
        latent=latent,
        moe=_moe(fields, layers),
        rotary=_rotary(fields),
        causal=fields.flag("causal", default=True),
        sliding_window=fields.whole("sliding_window", low=0, high=MAX_TOKENS, default=0),
        num_sliding_layers=min(layers, _whole(fields, "num_sliding_layers", low=0, default=0)),
        max_sequence_length=fields.whole("max_sequence_length", low=0, high=MAX_TOKENS, default=0),
        vector_params_per_layer=_count(fields, "vector_params_per_layer", -1),
        vector_params_per_expert=_count(fields, "vector_params_per_expert", 0),
        extra_params=_count(fields, "extra_params", -1),
    )


def _count(fields: Fields, key: str, least: int) -> int:
    return fields.whole(key, low=least, high=MAX_PARAMS, default=least)


def _head_dim(fields: Fields, hidden: int, heads: int, latent: LatentAttention | None) -> int:
    stated = _whole(fields, "head_dim", low=0, default=0)
    if stated:
        return stated
    if latent is not None:
        return latent.qk_nope_head_dim + latent.qk_rope_head_dim
    if hidden % heads and not fields.errors:
        message = (
            f"`hidden_size` {hidden} must be a multiple of the {heads} of `num_heads`, "
            "or `head_dim` must be given"
        )
        fields.wrong("head_dim", None, message)
    return max(1, hidden // heads)


def _attention(fields: Fields, latent: LatentAttention | None, *, all_heads: bool) -> Attention:
    plain = "mha" if all_heads else "gqa"
    value = fields.values.get("attention")
    if value is None:
        return "mla" if latent is not None else cast("Attention", plain)
    if value not in ("mha", "gqa", "mla"):
        message = f"`attention` must be `mha`, `gqa` or `mla`, not {shown(value)}"
        fields.wrong("attention", value, message)
        return cast("Attention", plain)
    if (value == "mla") != (latent is not None):
        message = "`attention` must be `mla` exactly when `latent` gives its sizes"
        fields.wrong("attention", value, message)
    return cast("Attention", value)


def _latent(fields: Fields) -> LatentAttention | None:
    if fields.values.get("latent") is None:
        return None
    inner = fields.nested("latent")
    _only(inner, _LATENT_KEYS)
    return LatentAttention(
        q_lora_rank=inner.whole("q_lora_rank", low=0, default=0),
        kv_lora_rank=inner.whole("kv_lora_rank"),
        qk_nope_head_dim=inner.whole("qk_nope_head_dim"),
        qk_rope_head_dim=inner.whole("qk_rope_head_dim"),
        v_head_dim=inner.whole("v_head_dim"),
    )


def _rotary(fields: Fields) -> RotaryPositions | None:
    if fields.values.get("rotary") is None:
        return None
    inner = fields.nested("rotary")
    _only(inner, _ROTARY_KEYS)
    factor = inner.values.get("factor", 1.0)
    if not is_number(factor) or factor < 1:
        inner.wrong(
            "factor", factor, f"`factor` must be a number of at least 1, not {shown(factor)}"
        )
    return RotaryPositions(base=inner.whole("base"), factor=factor)


def _moe(fields: Fields, layers: int) -> MixtureOfExperts | None:
    if fields.values.get("moe") is None:
        return None
    inner = fields.nested("moe")
    _only(inner, _MOE_KEYS)
    experts, chosen = inner.whole("num_experts"), inner.whole("top_k")
    if chosen > experts:
        inner.wrong("top_k", chosen, f"`top_k` must be at most the {experts} of `num_experts`")
    return MixtureOfExperts(
        num_experts=experts,
        top_k=chosen,
        expert_ffn_hidden_size=inner.whole("expert_ffn_hidden_size", high=MAX_FFN_SIZE),
        shared_expert_ffn_hidden_size=inner.whole(
            "shared_expert_ffn_hidden_size", low=0, high=MAX_FFN_SIZE, default=0
        ),
        num_moe_layers=inner.whole("num_moe_layers", low=0, high=layers, default=layers),
    )


def _with_ties(
    fields: Fields, vocabulary: int, defaults: ArchitectureDefaults, said: list[str]
) -> Fields:
    """Tied embeddings where two assumed tables would be too large a share of the parameters."""
    params = _params(fields, "params")
    if not params or fields.values.get("tied_embeddings") is not None:
        return fields
    if 2 * vocabulary * _whole(fields, "hidden_size") <= defaults.tied_embeddings_share * params:
        return fields
    said.append("input and output embeddings assumed to be tied")
    return _replaced(fields, tied_embeddings=True)


def _derived_ffn(
    fields: Fields, name: str, vocabulary: int, defaults: ArchitectureDefaults, said: list[str]
) -> int:
    """The feed-forward width that brings the model to `params`; without it, that of SwiGLU models.

    f = (params - embeddings - L * (attention + norms)) / (L * matrices * h), to a multiple of 256.
    Without a count: 8/3 h (gated) or 4 h. Source: GLU Variants, arXiv:2002.05202, section 3.
    """
    if _all_routed(fields):
        return 1
    bare = _sized(fields, name, 1, vocabulary)
    if fields.errors:
        return 1
    unit = bare.num_dense_layers * bare.mlp_matrices * bare.hidden_size
    params, multiple = _params(fields, "params"), defaults.ffn_multiple
    if not params:
        width = bare.hidden_size * 8 / 3 if bare.gated_mlp else bare.hidden_size * 4.0
        ffn = max(1, round(width / multiple)) * multiple
        said.append(f"feed-forward width of {ffn} assumed")
        return ffn
    exact = (params - bare.params + unit) / unit
    ffn = round(exact / multiple) * multiple if exact > multiple else round(exact)
    if 1 <= ffn <= MAX_FFN_RATIO * bare.hidden_size:
        said.append(f"feed-forward width of {ffn} derived from {_billions(params)} parameters")
        return ffn
    if ffn < 1:
        least = bare.params + unit
        message = f"`params` {params} must be greater than {least}, what the other sizes count to"
    else:
        most = bare.params + MAX_FFN_RATIO * bare.hidden_size * unit
        message = (
            f"`params` {params} must be less than {most} for these sizes; "
            "a mixture of experts must give `moe`"
        )
    fields.wrong("params", params, message)
    return 1


def _all_routed(fields: Fields) -> bool:
    """Whether experts stand in every layer, so that no dense width is needed."""
    moe = fields.values.get("moe")
    if not isinstance(moe, Mapping):
        return False
    routed = moe.get("num_moe_layers")
    return routed is None or routed == fields.values.get("num_layers")


def _billions(params: int) -> str:
    return f"{params / 1e9:.2f} B"
