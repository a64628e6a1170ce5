"""From logits to a token: the options of a request, the seeded noise, the choice, and the end of the text."""

from foredraft.sampling.noise import Noise, gumbel
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.pick import filtered_probs, pick, top_perturbed
from foredraft.sampling.stop import StopStrings

__all__ = ["Noise", "SamplingParams", "StopStrings", "filtered_probs", "gumbel", "pick", "top_perturbed"]
