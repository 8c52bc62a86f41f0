"""Names of APIs and errors, as tests write them: `Produce`, `OFFSET_COMMIT`, `not_leader_or_follower`."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey, ListenerKind, apis_of

T = TypeVar("T")


def find_api(api: "str | int") -> ApiKey:
    """Raises ValueError with all names if brokers do not serve such an API."""
    apis = {_camel_case(key.name): key for key in apis_of(ListenerKind.BROKER)}
    if isinstance(api, int):
        if api in apis.values():
            return ApiKey(api)
        raise ValueError(f"there is no API with key {api}. The APIs: {', '.join(apis)}")
    return _find(api, apis, "API")


def find_error(error: "str | int | ErrorCode") -> ErrorCode:
    """Raises ValueError with all names if there is no such error."""
    errors = {code.name.upper(): code for code in ErrorCode}
    if isinstance(error, str):
        return _find(error, errors, "error")
    try:
        return ErrorCode(error)
    except ValueError:
        raise ValueError(f"there is no error with code {error}. The errors: {', '.join(errors)}") from None


def _find(wanted: str, known: Mapping[str, T], kind: str) -> T:
    by_letters = {_letters(name): name for name in known}
    if (name := by_letters.get(_letters(wanted))) is not None:
        return known[name]
    close = difflib.get_close_matches(_letters(wanted), by_letters, 1)
    hint = f" Did you mean {by_letters[close[0]]}?" if close else ""
    raise ValueError(f"there is no {kind} {wanted!r}.{hint} The {kind}s: {', '.join(known)}")


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
