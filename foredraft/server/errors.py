"""What clients are told when something is wrong: a status, and a body in the shape of the API they speak."""

import re
from collections.abc import Mapping
from typing import Any

from foredraft.errors import ContextLengthError, ForedraftError, UserError
from foredraft.sampling import SamplingParams

_OPTION = re.compile(r"--([a-z][a-z-]*)")
_FIELDS = {name.replace("_", "-"): name for name in SamplingParams.__dataclass_fields__} | {
    "include-stop": "include_stop_str_in_output",
    "draft": "draft",
    "acceptance": "acceptance",
    "num-draft-tokens": "num_speculative_tokens",
}
"""Options of the command line that are fields of requests."""
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class ApiError(ForedraftError):
    """An answer that is no success.

    status: of HTTP. code: for programs, as OpenAI has them. param: the field that is wrong. headers: of the answer.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    @property
    def type(self) -> str:
        """As OpenAI names the kind of error."""
        if self.status >= 500:
            return "server_error"
        return {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, "invalid_request_error")

    def body(self, path: str) -> dict[str, Any]:
        """The JSON of it, as the API under this path has it."""
        if path.startswith("/v1/messages"):
            kind = _ANTHROPIC_TYPES.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")
            return {"type": "error", "error": {"type": kind, "message": str(self)}}
        return {"error": {"message": str(self), "type": self.type, "param": self.param, "code": self.code}}


def busy(message: str) -> ApiError:
    """An error that says to come again."""
    return ApiError(message, status=429, code="overloaded", headers={"Retry-After": "1"})


def api_error(error: Exception) -> ApiError:
    """What a client is told of an exception. Only errors that are the client's say what happened."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextLengthError):
        return ApiError(_in_fields(str(error)), code="context_length_exceeded", param="messages")
    if isinstance(error, UserError):
        message = _in_fields(str(error))
        return ApiError(message, code="invalid_value", param=_param(str(error)))
    if isinstance(error, RecursionError):
        return ApiError("the request is nested too deeply", code="invalid_value")
    return ApiError("internal error of the server; its log says more", status=500, code="internal_error")


def _in_fields(message: str) -> str:
    """A message with the names that requests have, in place of those of the command line."""
    return _OPTION.sub(lambda match: _FIELDS.get(match[1], match[0]), message)


def _param(message: str) -> str | None:
    """The field that a message is about: the first it names."""
    names = [_FIELDS[name] for name in _OPTION.findall(message) if name in _FIELDS]
    return names[0] if names else None
