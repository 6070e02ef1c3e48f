"""The Python client of tgad: tool calls that happen once, and can be proven.

`Client` blocks, `AsyncClient` does not, and `tool` makes a function of your own a governed call.
Errors are `Error` and a class for each code, as `EffectInDoubt`.
"""

from . import _codes
from ._async_client import AsyncBeginning, AsyncClient
from ._begun import Begun, NotSent
from ._client import Beginning, Client
from ._codes import *  # noqa: F403 - a class for each code
from ._errors import Error
from ._json import encode, parse
from ._result import Result, Unreachable
from ._tool import tool

__version__ = "0.1.0"

__all__ = [
    "AsyncBeginning",
    "AsyncClient",
    "Beginning",
    "Begun",
    "Client",
    "Error",
    "NotSent",
    "Result",
    "Unreachable",
    "encode",
    "parse",
    "tool",
    *(c.__name__ for c in _codes.CLASSES.values()),
]
