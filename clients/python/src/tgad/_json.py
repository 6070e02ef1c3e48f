"""JSON whose numbers and bytes do not change.

Text that a tool wrote is kept as it is written: it is cut out of a message, not read and
written again.
"""

from __future__ import annotations

import dataclasses
import json
from decimal import Decimal, InvalidOperation
from typing import Any, Dict, List, Tuple, Union

_reader = json.JSONDecoder()


def encode(value: Any) -> str:
    """Returns the JSON text of a value. Integers keep all digits.

    bytes are JSON text already and are taken as they are. A dataclass counts as the dictionary of
    its fields. Anything else that JSON does not have is a TypeError; NaN is a ValueError.
    """
    if isinstance(value, (bytes, bytearray)):
        text = bytes(value).decode("utf-8")
        parse(text)
        return text
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def plain(text: str) -> str:
    """The same words, in what UTF-8 has: half of a surrogate pair, as in the name of a file that is no UTF-8,
    becomes U+FFFD. For what people read, where losing a letter is better than losing the message."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _plain(value: Any) -> Any:
    """Accepts only strings as keys: json.dumps would write the key 1 as "1" and so change it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"a key of a JSON object is a string, not {key!r}")
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def parse(text: Union[str, bytes]) -> Any:
    """Reads JSON text. No number changes and no member is dropped.

    An integer is an int of any size. Another number is a float where a float holds it, else a
    Decimal. A member that stands twice, or NaN, is a ValueError: the text has more than a value shows.
    """
    return json.loads(text, parse_float=_number, parse_constant=_refuse, object_pairs_hook=_object)


def _number(text: str) -> Union[float, Decimal]:
    near = float(text)
    try:
        exact = Decimal(text)
    except InvalidOperation as error:  # it is not a ValueError
        raise ValueError(f"no value has the exponent of {text[:40]}") from error
    return near if near - near == 0 and Decimal(repr(near)) == exact else exact


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member of an object stands twice")
    return members


def members(text: str) -> Dict[str, str]:
    """Returns the members of a JSON object, each as the text that it is written as."""
    found: Dict[str, str] = {}
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("the text is not a JSON object")
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        name, at = _reader.raw_decode(text, at)
        at = _skip(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            raise ValueError("a JSON object has a member without a name")
        begin = _skip(text, at + 1)
        _, end = _reader.raw_decode(text, begin)
        found[name] = text[begin:end]
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "}":
            raise ValueError("a JSON object does not end")
    return found


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\n\r":
        at += 1
    return at
