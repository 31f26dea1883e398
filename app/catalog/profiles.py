"""TOML tables become the planner's dataclasses by field name: frameworks and calibration.

Nothing here knows a field: a dataclass may be reshaped without a change in this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from app.catalog.reading import is_whole, nearest, quoted, shown
from app.catalog.tables import CatalogError, Tables
from app.planner.efficiency import Efficiency
from app.planner.framework import FrameworkProfile

MAX_NUMBER: Final = 1e18
"""No number of a profile is larger: bytes, rates and counts all stay below."""

T = TypeVar("T")

Efficiencies = Mapping[str, Mapping[str, Efficiency]]
"""By calibration name, then by GPU name."""


def read_frameworks(tables: Tables, directory: Path) -> dict[str, FrameworkProfile]:
    """Every software profile of a directory, by name. Its file is named after it."""
    profiles = {}
    for path in sorted(directory.glob("*.toml")):
        file = f"frameworks/{path.name}"
        table = tables.toml(path, name=file)
        _sourced(table, file)
        own = {key: value for key, value in table.items() if key not in {"source", "sources"}}
        profile = from_table(FrameworkProfile, own, file=file)
        if profile.name != path.stem:
            raise CatalogError(file, "name", f"must be `{path.stem}`, the name of the file")
        profiles[profile.name] = profile
    return profiles


def read_efficiencies(
    tables: Tables, directory: Path, *, families: Mapping[str, str]
) -> dict[str, dict[str, Efficiency]]:
    """Every calibration of a directory, for every GPU. `families` gives each GPU's family.

    `[efficiency]` holds for all, `[families.F]` lies over it, `[gpus."G"]` over both.
    """
    return {
        path.stem: _calibration(
            tables.toml(path, name=f"calibration/{path.name}"),
            file=f"calibration/{path.name}",
            families=families,
        )
        for path in sorted(directory.glob("*.toml"))
    }


def _calibration(
    table: Mapping[str, Any], *, file: str, families: Mapping[str, str]
) -> dict[str, Efficiency]:
    _sourced(table, file)
    by_family = _overrides(table, "families", file=file)
    by_gpu = _overrides(table, "gpus", file=file)
    _known(by_family, set(families.values()), key="families", file=file)
    _known(by_gpu, set(families), key="gpus", file=file)
    base = {**_table(table, "efficiency", file=file)}
    if "provenance" in table:
        base.setdefault("provenance", table["provenance"])
    plain = from_table(Efficiency, base, file=file, key="efficiency")
    shared = {
        family: from_table(Efficiency, merged(base, own), file=file, key=f"families.{family}")
        for family, own in by_family.items()
    }
    found = {gpu: shared.get(family, plain) for gpu, family in families.items()}
    for gpu, own in by_gpu.items():
        values = merged(merged(base, by_family.get(families[gpu], {})), own)
        found[gpu] = from_table(Efficiency, values, file=file, key=f"gpus.{gpu}")
    return found


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, nested tables key by key."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def _overrides(table: Mapping[str, Any], key: str, *, file: str) -> dict[str, Mapping[str, Any]]:
    found = _table(table, key, file=file, default={})
    return {name: _table(found, name, file=file) for name in found}


def _table(
    table: Mapping[str, Any], key: str, *, file: str, default: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    value = table.get(key, default)
    if isinstance(value, Mapping):
        return value
    raise CatalogError(file, key, f"must be a table, not {shown(value)}")


def _known(given: Mapping[str, Any], known: set[str], *, key: str, file: str) -> None:
    for name in given:
        if name not in known:
            near = quoted(nearest(name, known)) or quoted(sorted(known))
            raise CatalogError(file, f"{key}.{name}", f"is not in the catalog; near it are {near}")


def _sourced(table: Mapping[str, Any], file: str) -> None:
    sources = table.get("sources", table.get("source"))
    texts = sources.values() if isinstance(sources, Mapping) else (sources,)
    if not sources or not all(isinstance(text, str) and text.strip() for text in texts):
        raise CatalogError(file, "sources", "must say where the numbers come from")


def from_table(cls: type[T], table: Mapping[str, Any], *, file: str, key: str = "") -> T:
    """An instance of the dataclass `cls` from a table with its fields' names."""
    hints = _hints(cast("Any", cls))
    for name in table:
        if name not in hints:
            near = nearest(name, hints, count=1)
            guess = f"; did you mean `{near[0]}`?" if near else ""
            raise CatalogError(file, _under(key, name), f"is not a field of {cls.__name__}{guess}")
    values = {
        name: _value(hints[name], value, file=file, key=_under(key, name))
        for name, value in table.items()
    }
    for one in fields(cls):  # type: ignore[arg-type]  # callers pass dataclasses
        if one.name not in values and one.default is MISSING and one.default_factory is MISSING:
            raise CatalogError(file, _under(key, one.name), "must be given")
    return cls(**values)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _under(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _value(hint: Any, value: Any, *, file: str, key: str) -> Any:
    """`value` as the type `hint`: a nested dataclass, a mapping, a tuple or a scalar."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _value(inner[0], value, file=file, key=key)
    if origin is Literal:
        if value in inner:
            return value
        raise CatalogError(file, key, f"must be one of {quoted(inner)}, not {shown(value)}")
    if is_dataclass(hint) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        if not isinstance(value, Mapping):
            raise CatalogError(file, key, f"must be a table, not {shown(value)}")
        if is_dataclass(hint):
            return from_table(hint, value, file=file, key=key)  # type: ignore[arg-type]  # a class
        return {
            name: _value(inner[1], one, file=file, key=_under(key, name))
            for name, one in value.items()
        }
    if origin is tuple:
        if not isinstance(value, list):
            raise CatalogError(file, key, f"must be a list, not {shown(value)}")
        return tuple(_value(inner[0], one, file=file, key=key) for one in value)
    return _scalar(hint, value, file=file, key=key)


def _scalar(hint: Any, value: Any, *, file: str, key: str) -> Any:
    if hint is float and (is_whole(value) or isinstance(value, float)):
        if isfinite(value) and 0 <= value <= MAX_NUMBER:
            return float(value)
        raise CatalogError(file, key, f"must be from 0 to {MAX_NUMBER:g}, not {shown(value)}")
    if hint is int and is_whole(value) and 0 <= value <= MAX_NUMBER:
        return value
    if hint in (str, bool) and isinstance(value, hint):
        return value
    words = {float: "a number", int: "a whole number from 0", str: "a text", bool: "true or false"}
    raise CatalogError(file, key, f"must be {words.get(hint, hint)}, not {shown(value)}")
