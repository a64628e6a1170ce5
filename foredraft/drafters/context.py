"""What drafters are made with."""

from dataclasses import dataclass, field

from foredraft.config import DraftConfig
from foredraft.kernels.operations import Kernels
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class DraftContext:
    """What drafters are made with: the target they are for, and how is to be drafted.

    tokenizer: the target's. vocab_size: how many tokens the target chooses from; others are never proposed.
    kernels: what a drafter's model computes with.
    decoder: the target itself, for drafters that are a part of it, and lest it be loaded twice; None: it is no model
    of ours.
    """

    tokenizer: Tokenizer
    vocab_size: int
    kernels: Kernels
    decoder: CachedDecoder | None = None
    config: DraftConfig = field(default_factory=DraftConfig)
