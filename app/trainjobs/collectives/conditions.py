r"""The language of the `when` column, compiled once into predicates.

    framework=megatron; tp>1 or cp>1; family<blackwell; no resource:hugepages-2Mi

Clauses separated by `;` must all hold; alternatives inside one are separated by ` or `.
A test is `[no ]subject[:key][operator value]`.

| subjects | operators |
|---|---|
| numbers: nodes gpus_per_node world tp pp cp ep memory hidden | = != < <= > >= |
| families, old to new: family | the same |
| words: framework gpu instance profile link ... | = != ~ !~, `=` takes `a,b` for one of them |
| lists: claim sidecar feature trait | the same; one element that fits is enough |
| maps with a key: label annotation resource operator env | the same, on the value of the key |

`~` searches a regular expression. Without an operator a test asks whether the fact is known; a
resource counts unless it is "0", and its key may end in `*`. A comparison with an unknown number
does not hold, except `!=`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from app.trainjobs.collectives.facts import FAMILIES, Facts, family_rank

Condition = Callable[[Facts], bool]
Text = Callable[[str], bool]

NUMBERS = frozenset({"nodes", "gpus_per_node", "world", "tp", "pp", "cp", "ep", "memory", "hidden"})
WORDS = frozenset(
    {
        "framework", "sharding", "sequence_parallel", "precision", "moe", "vendor", "gpu",
        "exclusive", "instance", "command", "profile", "link",
    }
)  # fmt: skip
LISTS = {"claim": "claims", "sidecar": "sidecars", "feature": "features", "trait": "traits"}
MAPS = {
    "label": "labels",
    "annotation": "annotations",
    "resource": "resources",
    "operator": "operator",
    "env": "env",
}
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEST = re.compile(
    r"(?P<absent>no\s+)?(?P<subject>[a-z_]+)(?::(?P<key>[^\s=~<>!]+))?"
    r"\s*(?:(?P<sign>!=|!~|<=|>=|=|~|<|>)\s*(?P<value>.+))?"
)


def condition(text: str) -> Condition:
    """The predicate `text` describes; raises `ValueError` that says what would be right."""
    clauses = tuple(_clause(part) for part in text.split(";") if part.strip())
    if not clauses:
        return _always
    if len(clauses) == 1:
        return clauses[0]

    def holds(facts: Facts) -> bool:
        # A plain loop: twice as fast as `all` over a generator, and this runs in every review.
        for clause in clauses:  # noqa: SIM110 - as above
            if not clause(facts):
                return False
        return True

    return holds


def asked(text: str) -> Iterator[tuple[str, str, str]]:
    """Subject, key ("" for none) and words of every test in a sound `text`."""
    for clause in text.split(";"):
        for words in clause.split(" or "):
            match = _TEST.fullmatch(words.strip())
            if match is not None:
                yield match["subject"], match["key"] or "", words.strip()


def _always(_: Facts) -> bool:
    return True


def _clause(text: str) -> Condition:
    tests = tuple(_test(part.strip()) for part in text.split(" or "))
    if len(tests) == 1:
        return tests[0]

    def holds(facts: Facts) -> bool:
        for test in tests:  # noqa: SIM110 - as in `condition`
            if test(facts):
                return True
        return False

    return holds


def _test(text: str) -> Condition:
    match = _TEST.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` must read like `tp>1`, `label:KEY=VALUE` or `no claim`")
    subject, key, sign, value = match.group("subject", "key", "sign", "value")
    if (key is not None) != (subject in MAPS):
        raise ValueError(f"`{text}`: only {_named(MAPS)} take a key, and they must")
    test = _subject_test(subject, key or "", sign or "", (value or "").strip())
    return _negated(test) if match["absent"] else test


def _negated(test: Condition) -> Condition:
    return lambda facts: not test(facts)


def _subject_test(subject: str, key: str, sign: str, value: str) -> Condition:
    if subject in NUMBERS:
        return _number_test(attrgetter(subject), sign, _number(value) if sign else 0.0)
    if subject == "family":
        return _family_test(sign, value)
    if subject in WORDS:
        return _word_test(attrgetter(subject), sign, value)
    if subject in LISTS:
        return _list_test(attrgetter(LISTS[subject]), sign, value)
    if subject in MAPS:
        return _map_test(subject, key, sign, value)
    known = _named([*NUMBERS, "family", *WORDS, *LISTS, *MAPS])
    raise ValueError(f"`{subject}` must be one of {known}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"`{text}` must be a number") from None


def _number_test(read: Callable[[Facts], Any], sign: str, bound: float) -> Condition:
    if not sign:
        return lambda facts: read(facts) is not None
    compare = _comparison(sign)
    unknown = sign == "!="

    def holds(facts: Facts) -> bool:
        number = read(facts)
        return unknown if number is None else compare(number, bound)

    return holds


def _family_test(sign: str, value: str) -> Condition:
    if not sign:
        return lambda facts: facts.family != ""
    bound = family_rank(value)
    if bound is None:
        raise ValueError(f"`{value}` must be one of {_named(FAMILIES)}")
    compare = _comparison(sign)

    def holds(facts: Facts) -> bool:
        rank = family_rank(facts.family)
        return sign == "!=" if rank is None else compare(rank, bound)

    return holds


def _comparison(sign: str) -> Callable[[Any, Any], bool]:
    if sign not in COMPARISONS:
        raise ValueError(f"`{sign}` compares text; a number or family takes {_named(COMPARISONS)}")
    return COMPARISONS[sign]


def _text_test(sign: str, value: str) -> Text:
    """What one text must be, `!` left aside."""
    if sign.endswith("~"):
        try:
            return _found(re.compile(value))
        except re.error as error:
            raise ValueError(f"`{value}` must be a regular expression: {error}") from None
    if sign not in {"=", "!="}:
        raise ValueError(f"`{sign}` compares numbers; text takes `=`, `!=`, `~` or `!~`")
    return frozenset(part.strip() for part in value.split(",")).__contains__


def _found(pattern: re.Pattern[str]) -> Text:
    return lambda text: pattern.search(text) is not None


def _word_test(read: Callable[[Facts], Any], sign: str, value: str) -> Condition:
    if not sign:
        return lambda facts: read(facts) != ""
    fits = _text_test(sign, value)
    wanted = not sign.startswith("!")
    return lambda facts: fits(read(facts)) is wanted


def _list_test(read: Callable[[Facts], Any], sign: str, value: str) -> Condition:
    if not sign:
        return lambda facts: bool(read(facts))
    fits = _text_test(sign, value)
    wanted = not sign.startswith("!")
    return lambda facts: any(map(fits, read(facts))) is wanted


def _map_test(subject: str, key: str, sign: str, value: str) -> Condition:
    read: Callable[[Facts], Mapping[str, str]] = attrgetter(MAPS[subject])
    if key.endswith("*"):
        return _prefix_test(read, key[:-1], sign)
    if not sign and subject == "resource":
        return lambda facts: read(facts).get(key, "0") != "0"
    if not sign:
        return lambda facts: key in read(facts)
    fits = _text_test(sign, value)
    wanted = not sign.startswith("!")

    def holds(facts: Facts) -> bool:
        found = read(facts).get(key)
        return (found is not None and fits(found)) is wanted

    return holds


def _prefix_test(read: Callable[[Facts], Mapping[str, str]], prefix: str, sign: str) -> Condition:
    if sign:
        raise ValueError(f"`{prefix}*` can only be asked for, not compared")
    return lambda facts: any(
        name.startswith(prefix) and count != "0" for name, count in read(facts).items()
    )


def _named(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
