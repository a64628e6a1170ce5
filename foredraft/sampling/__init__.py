"""From logits to a token: the options of a request, the seeded noise, the choice, and the end of the text."""

from foredraft.sampling.choose import SequenceView, choose, choose_processed, processed
from foredraft.sampling.coupled import coupled_chances
from foredraft.sampling.drawing import Drawing, Drawn, draw
from foredraft.sampling.logprobs import TokenLogprob, token_logprob
from foredraft.sampling.noise import Noise, gumbel
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.pick import filtered_probs, pick, top_perturbed
from foredraft.sampling.processors import LogitProcessor, ProcessorFactory, Processors
from foredraft.sampling.stop import StopStrings

__all__ = [
    "Drawing",
    "Drawn",
    "LogitProcessor",
    "Noise",
    "ProcessorFactory",
    "Processors",
    "SamplingParams",
    "SequenceView",
    "StopStrings",
    "TokenLogprob",
    "choose",
    "choose_processed",
    "coupled_chances",
    "draw",
    "filtered_probs",
    "gumbel",
    "pick",
    "processed",
    "token_logprob",
    "top_perturbed",
]
