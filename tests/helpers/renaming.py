"""A vocabulary with other ids, and models that go by them: the simplest case of another tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foredraft.drafters.cross_vocabulary import CrossVocabularyDrafter, original
from foredraft.drafters.model import ModelDrafter
from foredraft.kernels.batch import Batch
from foredraft.kernels.operations import Floats, Storage
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.text import Tokenizer
from foredraft.text.vocabulary import Vocabulary


def renamed(tokenizer: Tokenizer, order: Sequence[int]) -> Tokenizer:
    """The tokenizer with other ids: token i is what token order[i] was."""
    back = np.argsort(order)
    old = tokenizer.vocabulary
    vocabulary = Vocabulary([old.tokens[i] for i in order], bytes(old.kinds[i] for i in order), old.style)

    class Encoder:
        splitter = None

        @staticmethod
        def encode(text: str, *, parse_special: bool) -> list[int]:
            return back[tokenizer.encoder.encode(text, parse_special=parse_special)].tolist()

    return replace(
        tokenizer,
        vocabulary=vocabulary,
        encoder=Encoder(),
        bos_id=None,
        eos_id=int(back[tokenizer.eos_id]),
        eos_ids=frozenset(back[sorted(tokenizer.eos_ids)].tolist()),
    )


class Renamed:
    """A model that knows its tokens by other ids; its logits stay in the order of the old ones."""

    def __init__(self, decoder: CachedDecoder, order: Sequence[int]) -> None:
        self._forward = decoder.compiled
        self._order = np.array(order, np.int32)

    def __call__(self, batch: Batch, storage: Storage) -> Mapping[str, Floats]:
        return self._forward(replace(batch, tokens_N=self._order[batch.tokens_N]), storage)


def translated(decoder: CachedDecoder, target: Tokenizer, order: Sequence[int]) -> CrossVocabularyDrafter:
    """A draft model that knows tokens by other ids than the target; apart from that it is the decoder."""
    inner = ModelDrafter(
        CachedDecoder(decoder.config, Renamed(decoder, order), decoder.kernels),
        vocab_size=target.vocab_size,
        own_ids=np.argsort(order).astype(np.int32),
        original=original,
        name="model:renamed",
    )
    return CrossVocabularyDrafter(inner, target=target, own=renamed(target, order))
