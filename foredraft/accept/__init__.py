"""Which drafted tokens are kept. Pure functions over tokens and probabilities; no model is needed to try them.

coupled     walk.py       the target's own tokens, the default: equal to plain decoding token for token
rejection   rejection.py  chains, equal in distribution
tree        rejection.py  the same for trees whose children were drawn without replacement
block       block.py      chains judged as a whole, equal in distribution
traversal   block.py      the same for trees
typical     lenient.py    lossy: what the target does not find surprising
threshold   lenient.py    lossy: what the target finds likely enough
"""

from foredraft.accept.base import Accepted, Chance, Choice, Equality, NodeTarget, SeededChance
from foredraft.accept.block import block, traversal
from foredraft.accept.lenient import Threshold, Typical, lenient
from foredraft.accept.rejection import rejection
from foredraft.accept.rules import COUPLED, AcceptanceRule, in_words, make_rule
from foredraft.accept.walk import walk

__all__ = [
    "COUPLED",
    "AcceptanceRule",
    "Accepted",
    "Chance",
    "Choice",
    "Equality",
    "NodeTarget",
    "SeededChance",
    "Threshold",
    "Typical",
    "block",
    "in_words",
    "lenient",
    "make_rule",
    "rejection",
    "traversal",
    "walk",
]
