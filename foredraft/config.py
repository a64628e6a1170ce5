"""A way of drafting: the same value for the command line, Python, configurations, profiles and measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from foredraft.accept import COUPLED, AcceptanceRule, make_rule
from foredraft.errors import OptionError

MAX_DRAFT_TOKENS = 64
MAX_DRAFT_BRANCHES = 16
MAX_VOCAB = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """How is drafted. Raises OptionError, before anything is loaded, for what is out of range or has no meaning.

    drafters: names of methods, models (files, folders, hub ids, built-in names), "auto", "none", names that installed
    packages give their drafters, or objects that are drafters. One or several; each is asked for once.
    num_draft_tokens: tokens to draft in every round, 1 to 64; None: as many as pay.
    vocab_size: how many frequent tokens a draft model chooses from; 0: all; None: all of a small vocabulary, 32768 of
    one larger than 65536.
    num_branches: most tokens that a draft model proposes after each, 1 to 16; 1 for chains.
    min_survival: a draft model stops behind a token that is less likely than this to lie on the accepted path, as far
    as it knows itself; 0 for never.
    memory: texts of earlier sequences that "suffix" drafts from: "process", those since the start; "none"; or a file in
    which they are kept from one start to the next.
    acceptance: which drafted tokens are kept, see docs/acceptance.md.
    """

    drafters: tuple[Any, ...] = ("auto",)
    num_draft_tokens: int | None = None
    vocab_size: int | None = None
    num_branches: int = 1
    min_survival: float = 0.0
    memory: str | Path = "process"
    acceptance: str = "coupled"

    def __post_init__(self) -> None:
        object.__setattr__(self, "drafters", _as_drafters(self.drafters))
        if self.num_draft_tokens is not None:
            check_integer("--num-draft-tokens", self.num_draft_tokens, least=1, most=MAX_DRAFT_TOKENS)
        check_integer("--draft-branches", self.num_branches, least=1, most=MAX_DRAFT_BRANCHES)
        if self.vocab_size is not None:
            check_integer("--draft-vocab", self.vocab_size, least=0, most=MAX_VOCAB, why=" (0: all tokens)")
        if not isinstance(self.min_survival, int | float) or not 0 <= self.min_survival < 1:
            raise OptionError(f"min_survival must be from 0 up to but not 1, got {self.min_survival!r}")
        if not isinstance(self.memory, str | Path) or not str(self.memory):
            raise OptionError(f'--draft-memory must be "process", "none" or a file, got {self.memory!r}')
        self._check_rule()

    def _check_rule(self) -> None:
        rule = self.rule
        if rule != COUPLED and self.is_plain:
            raise OptionError(f"--acceptance {rule.name} is about drafted tokens, and --draft none drafts none")
        if rule.needs_draws and self.num_draft_tokens is None:
            raise OptionError(
                f"--acceptance {rule.name} needs --num-draft-tokens: a length that is chosen by looking at what was "
                "drafted would bias the text"
            )
        if rule.name in ("rejection", "block") and self.num_branches > 1:
            raise OptionError(
                f"--acceptance {rule.name} judges chains, --draft-branches asks for trees: use --acceptance traversal"
            )

    @property
    def rule(self) -> AcceptanceRule:
        """Which drafted tokens are kept."""
        return make_rule(self.acceptance)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is drafted."""
        return self.drafters == ("none",)

    @property
    def memory_file(self) -> Path | None:
        """The file that texts of earlier sequences are kept in, if it is one."""
        return None if self.memory in ("process", "none") else Path(self.memory).expanduser()

    @property
    def name(self) -> str:
        """The drafters, models by the names of their files, then what was asked for besides, as in "suffix:4"."""
        names = [one.rpartition("/")[2] if isinstance(one, str) else str(one.name) for one in self.drafters]
        number = "" if self.num_draft_tokens is None else f":{self.num_draft_tokens}"
        branches = f" x{self.num_branches}" if self.num_branches > 1 else ""
        survival = f" >{self.min_survival:g}" if self.min_survival else ""
        rule = "" if self.acceptance == "coupled" else f" ({self.acceptance})"
        return "+".join(names) + number + branches + survival + rule

    def to_json(self) -> dict[str, Any]:
        """Plain values of all that is not the default."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found["drafters"] = [one if isinstance(one, str) else one.name for one in self.drafters]
        found["memory"] = str(self.memory)
        plain = DraftConfig()
        return {name: value for name, value in found.items() if name == "drafters" or value != getattr(plain, name)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "DraftConfig":
        """From what `to_json` returned. Raises OptionError for unknown fields and values out of range."""
        known = {field.name for field in fields(cls)}
        if unknown := [name for name in values if name not in known]:
            raise OptionError(f"a way of drafting has no field {unknown[0]!r}: it has {', '.join(sorted(known))}")
        return cls(**values)


def check_integer(option: str, value: object, *, least: int, most: int, why: str = "") -> None:
    """Raise OptionError where an option is not a whole number in its range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise OptionError(f"{option} must be an integer from {least} to {most}{why}, got {value!r}")


def _as_drafters(asked: object) -> tuple[Any, ...]:
    several = asked if isinstance(asked, Sequence) and not isinstance(asked, str) else (asked,)
    found = tuple(str(one) if isinstance(one, Path) else one for one in several)
    for one in found:
        # What is missing of an object that is to be a drafter is said where it is used.
        if not isinstance(one, str) and not hasattr(one, "propose"):
            raise OptionError(f"--draft must be a name, a drafter or a list of these, got {one!r}")
    if not found:
        raise OptionError("--draft needs a name, a drafter or a list of these")
    if "none" in found and any(one != "none" for one in found):
        raise OptionError("--draft none cannot be combined with other drafters")
    return found


def as_config(
    draft: Any,
    num_draft_tokens: int | None,
    vocab_size: int | None,
    num_branches: int,
    memory: str | Path,
    acceptance: str,
) -> DraftConfig:
    """What the options of `LLM` say, as one value. Raises OptionError for a configuration and other options with it."""
    others = {
        "num_draft_tokens": num_draft_tokens,
        "vocab_size": vocab_size,
        "num_branches": num_branches,
        "memory": memory,
        "acceptance": acceptance,
    }
    if not isinstance(draft, DraftConfig):
        return DraftConfig(drafters=draft, **others)  # type: ignore[arg-type]
    if DraftConfig(**others) != DraftConfig():  # type: ignore[arg-type]
        raise OptionError("a DraftConfig says all about drafting: put the other options into it")
    return draft
