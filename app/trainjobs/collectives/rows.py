"""The rows of the rule tables as checked values. A bad row never loads.

Six kinds of rows, told apart by their `kind` column:

    profile    a fabric (exactly one holds for a job) or a trait of its nodes (any number)
    detect     a condition under which a profile is a candidate, and how strong the sign is
    variable   what a variable is: its class, what it touches, its other names
    set        a value for a variable under a profile and a condition
    warn       a user's own value that does harm, or advice where we must not set anything
    never      a variable nobody here may set under a profile, and who owns it
    reserved   a name, or a prefix ending in `*`, that belongs to an operator or a launcher
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.trainjobs.adapter import Setting
from app.trainjobs.collectives.conditions import Condition, condition

Row = Mapping[str, str | None]

ROLES = ("fabric", "trait")
TIERS = ("certain", "claim", "resource", "annotation", "node")
"""Signs from strong to weak; below them stand the operator's default profile and plain TCP."""
CLASSES = ("system", "debugging", "process", "provider")
SCOPES = ("network", "node", "process")
BASES = ("default", "provider", "plan", "operator", "hardware")
CONFIDENCES = ("high", "medium")
SECTIONS = ("common", "plan")
"""Profiles of `set` and `warn` rows beside the fabrics and traits: every job, and the layout."""
SPOKEN = ("always", "asked")
MAX_WARNING_CHARACTERS = 120
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_PLACEHOLDER = re.compile(r"<([a-z0-9-]+)>")


class BadRule(ValueError):  # noqa: N818 - it names the thing that is bad, as `BadZipFile` does
    """A row of the rule tables that cannot be used: where it stands and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A fabric or trait. `whole` values are set all together or not at all.

    `parents` are the more general profiles it refines, nearest first. A `bare` one takes nothing
    from any other rule.
    """

    name: str
    role: str
    link: str
    parents: tuple[str, ...]
    whole: bool
    bare: bool
    description: str
    source: str

    @property
    def may_be_default(self) -> bool:
        """Whether an operator may name it for a cluster: a fabric that joins nodes."""
        return self.role == "fabric" and self.link not in {"none", ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One way to recognise a profile."""

    profile: str
    tier: str
    when: str
    holds: Condition
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What a variable is. `names` are all its spellings, this one first."""

    name: str
    kind: str
    scope: str
    since: str
    default: str
    names: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRule:
    """A value for a variable. `placeholders` are the operator values that it still needs."""

    profile: str
    when: str
    holds: Condition
    variable: Variable
    setting: Setting
    placeholders: tuple[str, ...]
    basis: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WarnRule:
    """A sentence for people: about a user's value of `variable`, or advice if that is "".

    `spoken` is `always`, or `asked`: only where somebody asked for advice.
    """

    profile: str
    when: str
    holds: Condition
    variable: str
    message: str
    spoken: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverRule:
    """A variable that nobody here sets under a profile, and why."""

    profile: str
    variable: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """A name or prefix that belongs to somebody else."""

    pattern: str
    reason: str
    source: str

    def covers(self, name: str) -> bool:
        """Whether `name` is this name or starts with this prefix."""
        if self.pattern.endswith("*"):
            return name.startswith(self.pattern[:-1])
        return name == self.pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """All rows, checked, each kind in the order of the files."""

    profiles: Mapping[str, Profile]
    signs: tuple[Sign, ...]
    variables: Mapping[str, Variable]
    sets: tuple[SetRule, ...]
    warns: tuple[WarnRule, ...]
    nevers: tuple[NeverRule, ...]
    reserved: tuple[Reserved, ...]


def tables(rows: Iterable[Row]) -> Tables:
    """The rows as values; raises `BadRule` naming file, line and what would be right."""
    sorted_rows: dict[str, list[_Reader]] = {kind: [] for kind in KINDS}
    for number, row in enumerate(rows, start=1):
        reader = _Reader(row, number)
        sorted_rows[reader.one_of("kind", tuple(KINDS))].append(reader)
    profiles = _profiles(sorted_rows["profile"])
    variables = _variables(sorted_rows["variable"])
    reserved = tuple(map(_reserved, sorted_rows["reserved"]))
    nevers = tuple(_never(reader, profiles, variables) for reader in sorted_rows["never"])
    forbidden = {(rule.profile, rule.variable) for rule in nevers}
    return Tables(
        profiles=profiles,
        signs=tuple(_sign(reader, profiles) for reader in sorted_rows["detect"]),
        variables=variables,
        sets=tuple(
            _set(reader, profiles, variables, reserved, forbidden) for reader in sorted_rows["set"]
        ),
        warns=tuple(_warn(reader, profiles, variables) for reader in sorted_rows["warn"]),
        nevers=nevers,
        reserved=reserved,
    )


KINDS = ("profile", "detect", "variable", "set", "warn", "never", "reserved")


class _Reader:
    """The cells of one row, and the words to complain about them."""

    def __init__(self, row: Row, number: int) -> None:
        self._row = row
        self._number = number

    def bad(self, message: str) -> BadRule:
        place = f"row {self._number}"
        if self._row.get("file"):
            place = f"{self._row['file']}, line {self._row.get('line') or self._number}"
        about = [self._row.get(key) for key in ("kind", "profile", "variable")]
        return BadRule(f"{place} ({' '.join(part for part in about if part)}): {message}")

    def text(self, column: str) -> str:
        return (self._row.get(column) or "").strip()

    def required(self, column: str) -> str:
        text = self.text(column)
        if not text:
            raise self.bad(f"`{column}` must not be empty")
        return text

    def one_of(self, column: str, known: Iterable[str]) -> str:
        text, choices = self.text(column), tuple(known)
        if text not in choices:
            words = ", ".join(f"`{word}`" for word in choices)
            raise self.bad(f"`{column}` is `{text}`; it must be one of {words}")
        return text

    def condition(self, column: str = "when") -> Condition:
        try:
            return condition(self.text(column))
        except ValueError as error:
            raise self.bad(f"`{column}`: {error}") from None

    def source(self) -> str:
        return self.required("source")


def _profiles(readers: list[_Reader]) -> dict[str, Profile]:
    parents = {reader.required("profile"): reader.text("parent") for reader in readers}
    found: dict[str, Profile] = {}
    for reader in readers:
        profile = _profile(reader, parents)
        if profile.name in found or profile.name in SECTIONS:
            raise reader.bad(f"`{profile.name}` must be named once, and not like a section")
        found[profile.name] = profile
    return found


def _profile(reader: _Reader, parents: Mapping[str, str]) -> Profile:
    name = reader.required("profile")
    options = reader.text("options").split()
    if wrong := [option for option in options if option not in {"whole", "bare"}]:
        raise reader.bad(f"option `{wrong[0]}` must be `whole` or `bare`")
    return Profile(
        name=name,
        role=reader.one_of("role", ROLES),
        link=reader.text("link"),
        parents=_ancestors(reader, name, parents),
        whole="whole" in options,
        bare="bare" in options,
        description=reader.required("reason"),
        source=reader.source(),
    )


def _ancestors(reader: _Reader, name: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    line: list[str] = []
    parent = parents[name]
    while parent:
        if parent not in parents:
            raise reader.bad(f"parent `{parent}` must be a profile with a row of its own")
        if parent == name or parent in line:
            raise reader.bad(f"`{name}` must not refine itself")
        line.append(parent)
        parent = parents[parent]
    return tuple(line)


def _sign(reader: _Reader, profiles: Mapping[str, Profile]) -> Sign:
    return Sign(
        profile=reader.one_of("profile", profiles),
        tier=reader.one_of("tier", TIERS),
        when=reader.required("when"),
        holds=reader.condition(),
        source=reader.source(),
    )


def _variables(readers: list[_Reader]) -> dict[str, Variable]:
    groups = [_names(reader) for reader in readers]
    spellings: dict[str, set[str]] = {}
    for group in groups:
        for name in group:
            spellings.setdefault(name, set()).update(group)
    found: dict[str, Variable] = {}
    for reader, group in zip(readers, groups, strict=True):
        name = group[0]
        if name in found:
            raise reader.bad(f"`{name}` must be described once")
        others = sorted(spellings[name] - {name})
        found[name] = Variable(
            name=name,
            kind=reader.one_of("class", CLASSES),
            scope=reader.one_of("scope", SCOPES),
            since=reader.text("since"),
            default=reader.text("default"),
            names=(name, *others),
            source=reader.source(),
        )
    return found


def _names(reader: _Reader) -> tuple[str, ...]:
    names = (reader.required("variable"), *reader.text("aliases").split())
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise reader.bad(f"`{name}` must be an environment variable in capitals")
    return names


def _set(
    reader: _Reader,
    profiles: Mapping[str, Profile],
    variables: Mapping[str, Variable],
    reserved: tuple[Reserved, ...],
    forbidden: set[tuple[str, str]],
) -> SetRule:
    profile = reader.one_of("profile", (*SECTIONS, *profiles))
    name = reader.required("variable")
    if any(owner.covers(name) for owner in reserved):
        raise reader.bad(f"`{name}` is reserved; a rule must not set it")
    variable = variables.get(name)
    if variable is None:
        raise reader.bad(f"`{name}` must be described by a row of kind `variable`")
    if (profile, name) in forbidden:
        raise reader.bad(f"`{name}` has a `never` row for `{profile}`; it must not be set there")
    value = reader.required("value")
    basis = reader.one_of("basis", BASES)
    placeholders = tuple(_PLACEHOLDER.findall(value))
    if "<" in _PLACEHOLDER.sub("", value):
        raise reader.bad(f"`{value}`: a placeholder must read like `<ib-hca>`")
    if variable.kind == "debugging" and basis == "default":
        raise reader.bad(
            f"`{name}` is of the debugging class; its basis must say who wants it: "
            "`provider`, `plan`, `operator` or `hardware`"
        )
    if placeholders and basis != "operator":
        raise reader.bad(f"`{value}` needs an operator's value; its basis must be `operator`")
    return SetRule(
        profile=profile,
        when=reader.text("when"),
        holds=reader.condition(),
        variable=variable,
        setting=Setting(name=name, value=value, reason=_sentence(reader), source=reader.source()),
        placeholders=placeholders,
        basis=basis,
        confidence=reader.one_of("confidence", CONFIDENCES),
    )


def _warn(
    reader: _Reader, profiles: Mapping[str, Profile], variables: Mapping[str, Variable]
) -> WarnRule:
    name = reader.text("variable")
    if name and name not in variables:
        raise reader.bad(f"`{name}` must be described by a row of kind `variable`")
    return WarnRule(
        profile=reader.one_of("profile", (*SECTIONS, *profiles)),
        when=reader.text("when"),
        holds=reader.condition(),
        variable=name,
        message=_sentence(reader),
        spoken=reader.one_of("spoken", SPOKEN),
        source=reader.source(),
    )


def _sentence(reader: _Reader) -> str:
    text = reader.required("reason")
    if len(text) > MAX_WARNING_CHARACTERS:
        raise reader.bad(
            f"`reason` has {len(text)} characters; kubectl shows {MAX_WARNING_CHARACTERS} at most"
        )
    return text


def _never(
    reader: _Reader, profiles: Mapping[str, Profile], variables: Mapping[str, Variable]
) -> NeverRule:
    return NeverRule(
        profile=reader.one_of("profile", (*SECTIONS, *profiles)),
        variable=reader.one_of("variable", variables),
        reason=reader.required("reason"),
        source=reader.source(),
    )


def _reserved(reader: _Reader) -> Reserved:
    return Reserved(
        pattern=reader.required("variable"),
        reason=reader.required("reason"),
        source=reader.source(),
    )
