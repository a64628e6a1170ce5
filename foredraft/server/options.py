"""How the server is set up."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foredraft.config import check_integer
from foredraft.errors import OptionError

MAX_QUEUE = 256
MAX_BODY_MB = 16
MAX_SEQUENCES = 64


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Limits and habits of a server. Raises OptionError out of range.

    api_keys: one of them must come with every request but those for the page and /health; none: no key is needed.
    allowed_origins: web pages of other hosts that may use the server, "*": all. allowed_hosts: names under which it may
    be addressed, besides its own, when it listens on this machine only; "*": any.
    max_queue: requests that may be in work or wait; further ones are told to come again. max_body_mb: of a request.
    max_sequences: prompts of a request times the answers to each. max_tokens: most tokens of an answer; None: as many
    as fit. body_timeout_s: until a request has arrived whole. ping_s: silence of a stream before a comment is sent.
    request_log: a file that every request and its answer are appended to.
    generation_config: whose advice on sampling counts for what a request leaves out: "auto", the makers' of the model;
    a folder's; "none" or None, nobody's. chat_template: in place of the models' own.
    chat_template_kwargs: variables of it, unless a request gives them.
    """

    api_keys: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    max_queue: int = MAX_QUEUE
    max_body_mb: int = MAX_BODY_MB
    max_sequences: int = MAX_SEQUENCES
    max_tokens: int | None = None
    body_timeout_s: float = 30.0
    ping_s: float = 15.0
    request_log: Path | None = None
    generation_config: str | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_integer("--max-queue", self.max_queue, least=1, most=1_000_000)
        check_integer("--max-body", self.max_body_mb, least=1, most=4096)
        check_integer("--max-sequences", self.max_sequences, least=1, most=1024)
        if self.max_tokens is not None:
            check_integer("--max-tokens", self.max_tokens, least=1, most=2**31)
        if any(not key.strip() or not key.isascii() for key in self.api_keys):
            raise OptionError("--api-key must be of ASCII characters, and not empty")
        for origin in self.allowed_origins:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise OptionError(f"--allowed-origin must be * or begin with http:// or https://, got {origin!r}")
