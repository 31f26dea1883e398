"""One pass over the rules: recognise the fabric, then take the first value of each variable.

Detection goes from strong signs to weak ones. The first tier with a candidate decides; weaker
tiers may only refine it. Candidates that contradict each other give the generic set.
Order of the values: the layout's needs, then operator values, the fabric and what it refines, the
traits of the nodes, and what every job gets. A user's variable, under any of its names, is left
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

from app.planner.request import Plan
from app.trainjobs.adapter import CollectiveContext, Environment, Setting
from app.trainjobs.collectives.conditions import Condition, asked, condition
from app.trainjobs.collectives.facts import (
    DETERMINISTIC_SWITCH,
    FEATURES_ANNOTATION,
    Facts,
    facts_of,
)
from app.trainjobs.collectives.rows import (
    TIERS,
    BadRule,
    Profile,
    Reserved,
    Row,
    SetRule,
    Sign,
    Tables,
    WarnRule,
    tables,
)

T = TypeVar("T")
TCP = "tcp"
GENERIC = "generic"


@dataclass(slots=True)
class Said:
    """A command alone: a test of it asks nothing else of the facts."""

    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rule tables, ready to be applied. Thread-safe: nothing in it changes.

    `profiles` are the fabrics an operator may name as the default. `annotations` and `variables`
    are the names any rule looks at, `command_tests` all that is asked about a command.
    """

    tables: Tables
    tiers: tuple[tuple[Sign, ...], ...]
    traits: tuple[Sign, ...]
    sets: Mapping[str, tuple[SetRule, ...]]
    warns: Mapping[str, tuple[WarnRule, ...]]
    advice: Mapping[str, tuple[WarnRule, ...]]
    refinable: frozenset[str]
    profiles: tuple[str, ...]
    annotations: frozenset[str]
    variables: frozenset[str]
    command_tests: tuple[Condition, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> Rules:
        """The rules of the catalog's rows; raises `BadRule` on the first that cannot be used."""
        read = tables(rows)
        if missing := {TCP, GENERIC} - read.profiles.keys():
            raise BadRule(f"the rules must have a row of kind `profile` for {sorted(missing)}")
        fabrics = {name for name, profile in read.profiles.items() if profile.role == "fabric"}
        return cls(
            tables=read,
            tiers=tuple(
                tuple(s for s in read.signs if s.tier == tier and s.profile in fabrics)
                for tier in TIERS
            ),
            traits=tuple(s for s in read.signs if s.profile not in fabrics),
            sets=_sets(read),
            warns=_by_key((rule.variable, rule) for rule in read.warns if rule.variable),
            advice=_by_key((rule.profile, rule) for rule in read.warns if not rule.variable),
            refinable=frozenset(
                parent for profile in read.profiles.values() for parent in profile.parents
            ),
            profiles=tuple(name for name, one in read.profiles.items() if one.may_be_default),
            **_looked_at(read),
        )

    def environment(self, context: CollectiveContext, plan: Plan | None) -> Environment:
        """What to set for this job, and what to tell its author."""
        facts = self._recognised(context, plan)
        warnings = [*self._operator_warnings(context), *self._spoken(facts, "always")]
        settings = self._settings(facts, warnings)
        return Environment(
            settings=tuple(settings),
            warnings=tuple(dict.fromkeys(warnings)),
            profile="+".join((facts.profile, *facts.traits)),
        )

    def shown(self, context: CollectiveContext) -> tuple[Any, ...]:
        """All of `context` that the rules can tell apart, as JSON can hold it.

        Contexts that show the same have the same environment, whatever else is in them.
        """
        return (
            _plain_facts(context),
            tuple(context.node_labels.items()),
            _of(self.annotations, context.annotations),
            tuple(context.resources.items()),
            _of(self.variables, context.user_env),
            tuple(context.operator_values.items()),
            tuple(context.degrees.items()),
            self.told_of(context.command),
        )

    def told_of(self, command: str) -> str:
        """All that the rules can tell of a command: 1 for each test that holds, else 0."""
        said: Any = Said(command)
        return "".join(["1" if test(said) else "0" for test in self.command_tests])

    def advise(self, context: CollectiveContext, plan: Plan | None) -> tuple[str, ...]:
        """Advice for somebody who asked; too general to print at every `kubectl apply`."""
        facts = self._recognised(context, plan)
        return tuple(dict.fromkeys(self._advice(facts, "asked")))

    def reserved(self, name: str) -> Reserved | None:
        """Who owns `name`, if it is not ours to set."""
        return next((owner for owner in self.tables.reserved if owner.covers(name)), None)

    def _recognised(self, context: CollectiveContext, plan: Plan | None) -> Facts:
        facts = facts_of(context, plan)
        for sign in self.traits:
            if sign.profile not in facts.traits and sign.holds(facts):
                facts.traits = (*facts.traits, sign.profile)
        facts.profile = self._fabric(facts, context.default_profile)
        facts.link = self.tables.profiles[facts.profile].link
        if self.tables.profiles[facts.profile].bare:
            facts.traits = ()
        return facts

    def _fabric(self, facts: Facts, default: str) -> str:
        current = ""
        for signs in self.tiers:
            candidates = self._candidates(signs, facts)
            if len(candidates) > 1 and not current:
                return GENERIC
            if len(candidates) == 1:
                current = self._refined(current, candidates.pop())
            if current and current not in self.refinable:
                return current
        if default in self.profiles:
            parents = self.tables.profiles[default].parents
            current = default if not current or current in parents else current
        return current or TCP

    def _candidates(self, signs: tuple[Sign, ...], facts: Facts) -> set[str]:
        """The profiles `signs` point at, less those that others of them refine."""
        if "," in facts.instance and signs and signs[0].tier == "node":
            found = self._by_instance(signs, facts)
        else:
            found = {sign.profile for sign in signs if sign.holds(facts)}
        if len(found) > 1:
            found -= {parent for name in found for parent in self.tables.profiles[name].parents}
        return found

    def _by_instance(self, signs: tuple[Sign, ...], facts: Facts) -> set[str]:
        """The profiles of all candidate instance types; a type without one makes it generic."""
        listed, found = facts.instance, set()
        for instance in listed.split(","):
            facts.instance = instance.strip()
            found |= {sign.profile for sign in signs if sign.holds(facts)} or {GENERIC}
        facts.instance = listed
        return found - {GENERIC} if len(found) == 1 else found

    def _refined(self, current: str, candidate: str) -> str:
        """`candidate` if it says the same as `current` more precisely, else what was known."""
        fits = not current or current in self.tables.profiles[candidate].parents
        return candidate if fits else current

    def _settings(self, facts: Facts, warnings: list[str]) -> Iterator[Setting]:
        profile = self.tables.profiles[facts.profile]
        if profile.bare:
            return
        taken: set[str] = set()
        for rule in self._applicable(facts, profile, warnings):
            variable = rule.variable
            if variable.name in taken or not rule.holds(facts):
                continue
            if any(name in facts.env for name in variable.names):
                continue
            setting = _filled(rule, facts.operator) if rule.placeholders else rule.setting
            if setting is not None:
                taken.add(variable.name)
                yield setting

    def _applicable(self, facts: Facts, profile: Profile, warnings: list[str]) -> Iterator[SetRule]:
        network = facts.nodes > 1
        sections = ["plan", profile.name, *facts.traits, "common"]
        if profile.whole and (mine := self._theirs(profile, facts)):
            sections.remove(profile.name)
            warnings.append(
                f"{mine}: the {profile.name} values work only together; none of them was added"
            )
        for section in sections:
            for rule in self.sets.get(section, ()):
                if network or rule.variable.scope != "network":
                    yield rule

    def _theirs(self, profile: Profile, facts: Facts) -> str:
        """A variable of the whole set that the user gave another value."""
        for rule in self.sets.get(profile.name, ()):
            given = facts.env.get(rule.variable.name)
            if given is not None and given != rule.setting.value and rule.holds(facts):
                return rule.variable.name
        return ""

    def _spoken(self, facts: Facts, spoken: str) -> Iterator[str]:
        profile = self.tables.profiles[facts.profile]
        held = {"common", "plan", facts.profile, *profile.parents, *facts.traits}
        for name in () if profile.bare else facts.env:
            for rule in self.warns.get(name, ()):
                if rule.profile in held and rule.holds(facts):
                    yield rule.message
        yield from self._advice(facts, spoken)

    def _advice(self, facts: Facts, spoken: str) -> Iterator[str]:
        profile = self.tables.profiles[facts.profile]
        own = (facts.profile, *profile.parents)
        for section in own if profile.bare else (*own, *facts.traits, "plan", "common"):
            for rule in self.advice.get(section, ()):
                if rule.spoken == spoken and rule.holds(facts):
                    yield rule.message

    def _operator_warnings(self, context: CollectiveContext) -> Iterator[str]:
        name = context.default_profile
        if name and name not in self.profiles:
            yield f"the default network profile `{name}` is unknown; plain rules were applied"


_plain_facts = attrgetter(
    "nodes",
    "gpus_per_node",
    "gpu",
    "gpu_family",
    "gpu_exclusive",
    "instance_type",
    "claims",
    "sidecars",
    "framework",
    "default_profile",
)


def _of(names: frozenset[str], given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple([pair for pair in given.items() if pair[0] in names])


def _looked_at(read: Tables) -> dict[str, Any]:
    """What of annotations, variables and commands any rule may look at."""
    conditions = [
        *(sign.when for sign in read.signs),
        *(rule.when for rule in read.sets),
        *(rule.when for rule in read.warns),
    ]
    tests = {test for text in conditions for test in asked(text)}
    spellings = {name for one in read.variables.values() for name in one.names}
    return {
        "annotations": frozenset(
            {FEATURES_ANNOTATION} | {key for subject, key, _ in tests if subject == "annotation"}
        ),
        "variables": frozenset(
            spellings
            | {DETERMINISTIC_SWITCH[0]}
            | {rule.variable for rule in read.warns}
            | {key for subject, key, _ in tests if subject == "env"}
        ),
        "command_tests": tuple(
            condition(words) for subject, _, words in sorted(tests) if subject == "command"
        ),
    }


def _filled(rule: SetRule, operator: Mapping[str, str]) -> Setting | None:
    """The setting with operator values in their places; `None` if one is missing."""
    value = rule.setting.value
    for key in rule.placeholders:
        given = operator.get(key, "").strip()
        if not given:
            return None
        value = value.replace(f"<{key}>", given)
    return replace(rule.setting, value=value)


def _sets(read: Tables) -> dict[str, tuple[SetRule, ...]]:
    """The rules of each section: a fabric inherits, and operator values come first."""
    own = _by_key((rule.profile, rule) for rule in read.sets)
    sections = dict(own)
    for name, profile in read.profiles.items():
        rules = [rule for one in (name, *profile.parents) for rule in own.get(one, ())]
        sections[name] = tuple(sorted(rules, key=lambda rule: rule.basis != "operator"))
    return sections


def _by_key(pairs: Iterable[tuple[str, T]]) -> dict[str, tuple[T, ...]]:
    grouped: dict[str, list[T]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in grouped.items()}
