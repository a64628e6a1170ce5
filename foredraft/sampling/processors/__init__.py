"""The options that change logits before a token is chosen: see `foredraft.sampling.processors.base`."""

from foredraft.sampling.processors.base import LogitProcessor, Processors

__all__ = ["LogitProcessor", "Processors"]
