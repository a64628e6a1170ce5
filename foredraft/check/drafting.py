"""One way of drafting, and the model with it."""

from dataclasses import dataclass
from pathlib import Path

from foredraft.llm import LLM


@dataclass(frozen=True)
class Drafting:
    """One way of drafting. num_draft_tokens: of a round; None: what pays. acceptance: the rule by its name."""

    draft: tuple[str, ...]
    num_draft_tokens: int | None = None
    num_branches: int = 1
    acceptance: str = "coupled"

    @property
    def name(self) -> str:
        """The drafters, and the rule where it is not the default."""
        return self.drafters if self.acceptance == "coupled" else f"{self.drafters} ({self.acceptance})"

    @property
    def drafters(self) -> str:
        """The drafters alone, models by the names of their files."""
        return "+".join(name.rpartition("/")[2] for name in self.draft)


def draft_with(llm: LLM, drafting: Drafting, trace: Path | None = None) -> LLM:
    """The model with another way of drafting. trace: a file for what its rounds do."""
    return llm.with_drafts(
        drafting.draft,
        num_draft_tokens=drafting.num_draft_tokens,
        num_draft_branches=drafting.num_branches,
        acceptance=drafting.acceptance,
        trace=trace,
    )
