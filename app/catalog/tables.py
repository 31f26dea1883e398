"""The catalog's files as rows: CSV and TOML, the built-in ones and an operator's overlay.

Both formats say the same thing. A row of `gpus.csv` and a table `[gpus."NAME"]` of any `.toml` file
have the same keys. An overlay row replaces the built-in row of its name, or adds one; `like` starts
it from another row.
"""

from __future__ import annotations

import csv
import hashlib
import io
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from app.catalog.reading import is_number, nearest, quoted, shown

KINDS: Final = ("gpus", "labels", "fabrics", "instances", "models")
CSV_KINDS: Final = ("gpus", "labels", "fabrics", "instances")
VERSION_CHARACTERS: Final = 12
LISTED_NAMES: Final = 12
MAX_OVERLAY_FILE_BYTES: Final = 2**20
"""What a ConfigMap can hold."""


class CatalogError(ValueError):
    """A catalog file is wrong: which file, which key, and what would be right."""

    def __init__(self, file: str, key: str, message: str) -> None:
        super().__init__(f"{file}: {key}: {message}" if key else f"{file}: {message}")
        self.file = file
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One entry of one file. Values are strings (CSV) or what TOML gives."""

    file: str
    name: str
    values: Mapping[str, Any]

    def wrong(self, key: str, message: str) -> CatalogError:
        """The error that says `key` of this row is wrong."""
        return CatalogError(self.file, f"{self.name}.{key}" if key else self.name, message)

    def has(self, key: str) -> bool:
        """Whether the row says anything under `key`."""
        return self.values.get(key) not in (None, "")

    def text(self, key: str, *, default: str | None = None) -> str:
        """The text under `key`; without a `default` it must be there."""
        value = self.values.get(key)
        if value in (None, "") and default is not None:
            return default
        if isinstance(value, str) and value.strip():
            return value.strip()
        raise self.wrong(key, f"must be a text that is not empty, not {shown(value)}")

    def one_of(self, key: str, known: Iterable[str], *, default: str | None = None) -> str:
        """The text under `key`, which must be one of `known`."""
        text, names = self.text(key, default=default), tuple(known)
        if text in names:
            return text
        near = nearest(text, names, count=1)
        guess = f" (did you mean `{near[0]}`?)" if near else ""
        listed = quoted(names) if len(names) <= LISTED_NAMES else "a known name"
        raise self.wrong(key, f"must be {listed}, not {shown(text)}{guess}")

    def texts(self, key: str) -> tuple[str, ...]:
        """The words under `key`: a list, or a text with blanks between them."""
        value = self.values.get(key)
        if value is None:
            return ()
        if isinstance(value, str):
            return tuple(value.split())
        if isinstance(value, list) and all(isinstance(one, str) and one for one in value):
            return tuple(value)
        raise self.wrong(key, f"must be a list of texts, not {shown(value)}")

    def number(self, key: str, *, low: float, high: float, default: float | None = None) -> float:
        """The number under `key`, from `low` to `high`; without a `default` it must be there."""
        value = self.values.get(key)
        if value in (None, "") and default is not None:
            return default
        number = _as_number(value)
        if number is not None and low <= number <= high:
            return number
        raise self.wrong(key, f"must be a number from {low:g} to {high:g}, not {shown(value)}")

    def whole(self, key: str, *, low: int, high: int, default: int | None = None) -> int:
        """The whole number under `key`, from `low` to `high`."""
        number = self.number(key, low=low, high=high, default=default)
        if number == int(number):
            return int(number)
        raise self.wrong(key, f"must be a whole number, not {shown(self.values.get(key))}")

    def reasons(self, key: str) -> dict[str, str]:
        """`column: why; column: why` as a mapping. Every column must be one of this row."""
        parts = [part for part in self.text(key, default="").split("; ") if part]
        found = {}
        for part in parts:
            column, colon, why = part.partition(": ")
            if not colon or not self.has(column):
                raise self.wrong(key, f"must read `column: why; column: why`, not {shown(part)}")
            found[column] = why
        return found

    def only(self, columns: Iterable[str]) -> None:
        """Raise if the row has a key that is not one of `columns`."""
        known = tuple(columns)
        for key in self.values:
            if key not in known:
                near = nearest(str(key), known, count=1)
                guess = f"; did you mean `{near[0]}`?" if near else ""
                raise self.wrong(str(key), f"is not known{guess} Known are {quoted(known)}")


def _as_number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return value if is_number(value) else None


@dataclass(slots=True, kw_only=True)
class Tables:
    """All rows by kind and name, later files over earlier ones, and the digest of what was read."""

    rows: dict[str, dict[str, Row]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    digest: Any = field(default_factory=hashlib.sha256)

    @property
    def version(self) -> str:
        """A short hash of every byte read so far."""
        return str(self.digest.hexdigest()[:VERSION_CHARACTERS])

    def read(self, path: Path, *, name: str) -> str:
        """The text of a file, its bytes counted in the version under `name`."""
        try:
            content = path.read_bytes()
            text = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise CatalogError(name, "", f"cannot be read as UTF-8 text ({error})") from error
        self.digest.update(f"{name}\0{len(content)}\0".encode())
        self.digest.update(content)
        return text

    def toml(self, path: Path, *, name: str) -> dict[str, Any]:
        """A TOML file as its tables."""
        try:
            return tomllib.loads(self.read(path, name=name))
        except tomllib.TOMLDecodeError as error:
            raise CatalogError(name, "", f"must be TOML: {error}") from error

    def add(self, kind: str, row: Row) -> None:
        """Lay a row over the one of its name."""
        values = row.values
        if "like" in values:
            base = self.rows[kind].get(str(values["like"]))
            if base is None:
                near = nearest(str(values["like"]), self.rows[kind])
                raise row.wrong("like", f"must name an entry; near it are {quoted(near) or 'none'}")
            own = {key: value for key, value in values.items() if key != "like"}
            inherited = {k: v for k, v in base.values.items() if k not in {"aliases", "source"}}
            row = Row(file=row.file, name=row.name, values={**inherited, **own})
        self.rows[kind][row.name] = row


def csv_rows(text: str, *, file: str, kind: str) -> list[Row]:
    """The rows of a CSV file. A label's name is its key and value."""
    reader = csv.DictReader(io.StringIO(text), strict=True)
    rows = []
    try:
        for number, values in enumerate(reader, start=2):
            if None in values or None in values.values():
                message = f"line {number} must have as many cells as the header"
                raise CatalogError(file, "", message)
            name = _label_name(values) if kind == "labels" else values.get("name", "")
            if not name.strip():
                raise CatalogError(file, f"line {number}", "must have a `name`")
            rest = {key: value for key, value in values.items() if key != "name"}
            rows.append(Row(file=file, name=name.strip(), values=rest))
    except csv.Error as error:
        raise CatalogError(file, f"line {reader.line_num}", f"must be CSV: {error}") from error
    return rows


def _label_name(values: Mapping[str, Any]) -> str:
    key, value = values.get("key") or "", values.get("value") or ""
    return f"{key}={value}" if key else value


def toml_rows(tables: Mapping[str, Any], *, file: str) -> list[tuple[str, Row]]:
    """The rows of a TOML file by kind. `[labels]` maps a label value to a GPU's name."""
    rows = []
    for kind, entries in tables.items():
        if kind not in KINDS:
            near = nearest(str(kind), KINDS, count=1)
            guess = f"; did you mean `{near[0]}`?" if near else ""
            raise CatalogError(file, kind, f"is not known{guess} Known are {quoted(KINDS)}")
        if not isinstance(entries, Mapping):
            raise CatalogError(file, kind, f'must hold tables, as in [{kind}."NAME"]')
        for name, values in entries.items():
            rows.append((kind, _toml_row(kind, name, values, file=file)))
    return rows


def _toml_row(kind: str, name: str, values: Any, *, file: str) -> Row:
    if kind == "labels" and isinstance(values, str):
        said = {"key": "", "value": name, "reads": "gpu", "gpu": values, "source": "the operator"}
        return Row(file=file, name=name, values=said)
    if not isinstance(values, Mapping):
        raise CatalogError(file, f"{kind}.{name}", f"must be a table, not {shown(values)}")
    if kind == "labels":
        raise CatalogError(file, f"labels.{name}", "must be the name of a GPU")
    return Row(file=file, name=name, values=values)


def add_overlay(tables: Tables, directory: Path) -> None:
    """Lay the files of an operator's directory over the built-in rows, in the order of their names.

    Reads plain files and links to them, as a mounted ConfigMap has; names that start with a dot
    are the mount's own.
    """
    if not directory.is_dir():
        raise CatalogError(str(directory), "", "must be a directory")
    paths = [path for path in directory.iterdir() if not path.name.startswith(".")]
    found = [entry for path in sorted(paths) for entry in _overlay_rows(tables, path)]
    # Rows that stand alone come first, so that one may be `like` a row of any file.
    for kind, row in sorted(found, key=lambda entry: "like" in entry[1].values):
        tables.add(kind, row)


def _overlay_rows(tables: Tables, path: Path) -> list[tuple[str, Row]]:
    name = path.name
    if not path.is_file():
        raise CatalogError(name, "", "must be a file; the directory is flat")
    if path.stat().st_size > MAX_OVERLAY_FILE_BYTES:
        raise CatalogError(name, "", f"must not be larger than {MAX_OVERLAY_FILE_BYTES} bytes")
    if path.suffix == ".toml":
        return toml_rows(tables.toml(path, name=name), file=name)
    if path.suffix == ".csv" and path.stem in CSV_KINDS:
        text = tables.read(path, name=name)
        return [(path.stem, row) for row in csv_rows(text, file=name, kind=path.stem)]
    accepted = quoted([f"{kind}.csv" for kind in CSV_KINDS])
    raise CatalogError(name, "", f"is not read; a file must be one of {accepted} or end in .toml")
