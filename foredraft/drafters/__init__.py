"""The ways of drafting. `registry.py` knows them by name; each has a file of its own."""

from foredraft.drafters.base import Drafter, DrafterSpec, Outcome, PromptFeatures, SequenceView, no_draft
from foredraft.drafters.context import DraftContext
from foredraft.drafters.delegating import DelegatingDrafter
from foredraft.drafters.merge import likeliest_part, merge_trees
from foredraft.drafters.registry import (
    AUTO,
    COMPARED,
    LIGHT_METHODS,
    METHODS_WITHOUT_MODEL,
    PREDICTION,
    drafter_of_text,
    drafter_of_texts,
    first_with_grammar,
    is_method,
    is_model_based,
    make_drafter,
    make_drafters,
    names_a_model,
    with_grammar,
)

__all__ = [
    "AUTO",
    "COMPARED",
    "LIGHT_METHODS",
    "METHODS_WITHOUT_MODEL",
    "PREDICTION",
    "DelegatingDrafter",
    "DraftContext",
    "Drafter",
    "DrafterSpec",
    "Outcome",
    "PromptFeatures",
    "SequenceView",
    "drafter_of_text",
    "drafter_of_texts",
    "first_with_grammar",
    "is_method",
    "is_model_based",
    "likeliest_part",
    "make_drafter",
    "make_drafters",
    "merge_trees",
    "names_a_model",
    "no_draft",
    "with_grammar",
]
