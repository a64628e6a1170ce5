"""Draft models: from a file, with the target's vocabulary or another, or the target itself without some layers."""

import numpy as np

from foredraft.drafters.base import Drafter
from foredraft.drafters.context import DraftContext
from foredraft.drafters.cross_vocabulary import CrossVocabularyDrafter, names_of_tokens, original
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.skip import SAMPLE, choose_layers, parse_layers
from foredraft.errors import OptionError
from foredraft.kernels.batch import Ints
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.models.load import load_decoder, load_part
from foredraft.models.source import ModelSource, open_model
from foredraft.models.store import resolve
from foredraft.text import Tokenizer, first_difference, load_tokenizer

LARGE_VOCABULARY = 65536
"""Tokens from which on a draft model computes the logits of the frequent ones only, unless told otherwise."""
NUM_FREQUENT_TOKENS = 32768


def load_model(name: str, context: DraftContext) -> Drafter:
    """Drafts from a model: a file, a folder, a hub id or a built-in name. Raises what loading it raises."""
    path = resolve(name)
    status, vocab_size = path.stat(), context.config.vocab_size
    identity = repr((str(path.resolve()), status.st_size, status.st_mtime_ns, vocab_size))
    name, whole = f"model:{path.stem}", context.decoder
    if whole is not None and whole.source is not None and path.samefile(whole.source.path):
        return _part(whole, range(whole.config.num_layers), context, name=name, identity=identity)
    source = open_model(path)
    own = load_tokenizer(source.tokenizer_data)
    if first_difference(context.tokenizer, own) is not None:
        return _cross_vocabulary(source, own, context, name=name, identity=identity)
    token_ids = _frequent_tokens(context.tokenizer, _vocab_size(source, context), vocab_size)
    decoder = load_decoder(source, kernels=context.kernels, token_ids=token_ids)
    return _model_drafter(decoder, context, token_ids, name=name, identity=identity)


def load_target_without_layers(layers: str, context: DraftContext) -> Drafter:
    """The target without some layers: those named, or those that a short search finds to be the least missed.

    Raises OptionError for layers that it does not have, and for a target that is no model of ours.
    """
    whole = context.decoder
    if whole is None or whole.source is None:
        raise OptionError("--draft skip needs a target that is a model of ours")
    num_layers = whole.config.num_layers
    if layers:
        left_out = parse_layers(layers, num_layers)
    else:
        vocab_size = _vocab_size(whole.source, context)
        token_ids = _frequent_tokens(context.tokenizer, vocab_size, context.config.vocab_size)
        num_logits = vocab_size if token_ids is None else len(token_ids)
        left_out = choose_layers(whole, context.tokenizer.encode(SAMPLE), num_logits=num_logits)
    kept = [layer for layer in range(num_layers) if layer not in left_out]
    return _part(whole, kept, context, name="skip", identity=repr((kept, context.config.vocab_size)))


def _part(
    whole: CachedDecoder, layers: range | list[int], context: DraftContext, *, name: str, identity: str
) -> ModelDrafter:
    """Some layers of the target, or all of them, with a cache of their own: the target's is for its sequences alone."""
    assert whole.source is not None
    token_ids = _frequent_tokens(context.tokenizer, _vocab_size(whole.source, context), context.config.vocab_size)
    part = load_part(whole, layers, token_ids=token_ids)
    return _model_drafter(part, context, token_ids, name=name, identity=identity)


def _vocab_size(source: ModelSource, context: DraftContext) -> int:
    """Real tokens that a model of the same vocabulary shares with the target."""
    return min(context.tokenizer.vocab_size, source.config.vocab_size)


def _model_drafter(
    decoder: CachedDecoder, context: DraftContext, token_ids: Ints | None, *, name: str, identity: str
) -> ModelDrafter:
    return ModelDrafter(
        decoder,
        vocab_size=min(context.tokenizer.vocab_size, decoder.config.vocab_size),
        token_ids=token_ids,
        num_branches=context.config.num_branches,
        draws_over=context.vocab_size if context.config.rule.needs_draws else None,
        end_ids=context.tokenizer.eos_ids,
        name=name,
        identity=identity,
    )


def _cross_vocabulary(
    source: ModelSource, own: Tokenizer, context: DraftContext, *, name: str, identity: str
) -> CrossVocabularyDrafter:
    target, vocab_size = context.tokenizer, min(own.vocab_size, source.config.vocab_size)
    frequent = _frequent_tokens(own, vocab_size, context.config.vocab_size)
    own_ids = np.arange(vocab_size, dtype=np.int32) if frequent is None else frequent
    all_names = names_of_tokens(target, own)
    names = all_names[own_ids]
    order = np.argsort(names, kind="stable")
    order = order[np.diff(names[order], prepend=-1) > 0]  # of two that mean the same, one is enough
    names, own_ids = names[order], own_ids[order]
    drafter = ModelDrafter(
        load_decoder(source, kernels=context.kernels, token_ids=own_ids),
        vocab_size=target.vocab_size,
        token_ids=names,
        own_ids=own_ids,
        original=original,
        num_branches=context.config.num_branches,
        end_ids=target.eos_ids | {int(all_names[token]) for token in own.eos_ids if token < len(all_names)},
        name=name,
        identity=identity,
    )
    return CrossVocabularyDrafter(drafter, target=target, own=own)


def _frequent_tokens(tokenizer: Tokenizer, vocab_size: int, wanted: int | None) -> Ints | None:
    """The tokens a draft model chooses from, or None for all of them.

    The output matrix is a third of what a small model reads for a token, and most of its rows belong to rare tokens.
    The merges of a vocabulary are learned from the most to the least frequent pair, so low ids are frequent tokens.
    SentencePiece puts the single characters, full stop and digits among them, behind the merges: the first of these
    are taken too. The end tokens always are.
    """
    if wanted is None:
        wanted = NUM_FREQUENT_TOKENS if vocab_size > LARGE_VOCABULARY else 0
    if not 0 < wanted < vocab_size:
        return None
    texts = tokenizer.vocabulary.tokens
    characters = [token for token in range(wanted, min(vocab_size, len(texts))) if len(texts[token]) == 1]
    ends = [token for token in tokenizer.eos_ids if wanted <= token < vocab_size]
    return np.array(sorted({*range(wanted), *characters[: wanted // 8], *ends}), dtype=np.int32)
