"""Which drafted tokens are kept: a walk down the draft tree along the target's own tokens.

                 root "the"            the target's own token after "the" is "cat": go to that child
                 /        \\
             "dog"       "cat"         after "the cat" it is "sat": go there
               |         /    \\
            "ran"    "sat"   "is"      after "the cat sat" it is "on": no such child, so stop;
                       |               the path is (cat, sat), and "on" is the bonus
                    "down"

This is exact because the target's token at a position is a fixed function of the tokens before it: the
largest logit, or at a temperature above 0 the largest logit plus noise that depends on seed, position and
token alone (`foredraft.sampling`). Drafts are only compared with that token and have no influence on it, so
any drafter and any tree lead to the same text; good ones lead there in fewer rounds.
"""

from collections.abc import Callable

from foredraft.accept.base import Accepted
from foredraft.tree import DraftTree


def walk(tree: DraftTree, target_token: Callable[[int], int]) -> Accepted:
    """Follow the target's own tokens down the tree until it leaves it.

    target_token: from a node's index to the token the target chooses after that node. It is called for the
    root and for accepted nodes only, once each and in that order, so it may be as costly as sampling.

    Every round emits at least one token. A node whose id is not in the vocabulary (-1, say) is never reached.
    """
    path: list[int] = []
    node = 0
    while True:
        token = target_token(node)
        child = tree.child(node, token)
        if child is None:
            return Accepted(path=tuple(path), bonus=token)
        path.append(child)
        node = child
