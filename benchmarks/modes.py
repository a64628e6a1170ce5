"""The ways of drafting that a benchmark compares, as they are written on the command line."""

from foredraft.config import DraftConfig

PLAIN = "none"


def config_of(mode: str, *, draft: str | None) -> DraftConfig:
    """The way of drafting of a mode. Raises ValueError, and OptionError as `DraftConfig`.

    Modes: `none`; `lookup` or another drafter's name; `draft` for the draft model; several joined by `+`, such as
    `auto+draft`; each with `:K` behind it for K draft tokens a round, without it as many as the planner finds to pay.
    Nothing is drafted from earlier texts, which would favour modes that see a prompt twice.
    """
    names, _, number = mode.partition(":")
    if number and not number.isdigit():
        raise ValueError(f"mode {mode}: what follows the colon must be a number of draft tokens")
    if "draft" in names.split("+") and draft is None:
        raise ValueError(f"mode {mode} needs --draft")
    drafters = tuple(draft if name == "draft" else name for name in names.split("+"))
    return DraftConfig(drafters=drafters, num_draft_tokens=int(number) if number else None, memory="none")
