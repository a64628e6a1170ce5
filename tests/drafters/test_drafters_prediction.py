import numpy as np
import pytest
from helpers.drafting import View, budgets
from helpers.engines import tiny_tokenizer

from foredraft.drafters.prediction import PredictionDrafter
from foredraft.errors import OptionError
from foredraft.sampling import SamplingParams
from foredraft.tree import DraftTree

PROMPT = [1, 2, 3]


def view(prediction: str | None, answer: str = "", sequence_id: int = 0) -> View:
    tokens = [*PROMPT, *tiny_tokenizer().encode(answer)]
    return View(tokens, sequence_id, len(PROMPT), SamplingParams(seed=0, prediction=prediction))


def continuations(tree: DraftTree) -> list[str]:
    """The text of the path to each leaf."""
    leaves = [node for node in range(tree.num_nodes) if not tree.children(node)]
    return [tiny_tokenizer().decode([tree.tokens[n] for n in tree.path(leaf)], skip_special=False) for leaf in leaves]


def draft(prediction: str, answer: str, budget: int = 8) -> list[str]:
    drafter, sequence = PredictionDrafter(tiny_tokenizer()), view(prediction, answer)
    [tree] = drafter.propose([sequence], budgets(budget))
    assert tree.tokens[0] == sequence.tokens[-1]
    assert tree.num_draft_tokens <= budget
    return continuations(tree)


def test_an_answer_like_its_prediction() -> None:
    assert draft("abcdefghij", "", budget=4) == ["abcd"]
    assert draft("abcdefghij", "abc", budget=4) == ["defg"]
    assert draft("abcdefghij", "abcdefgh", budget=5) == ["ij<|endoftext|>"]
    assert draft("abcdefghij", "abcdefghij", budget=1) == ["<|endoftext|>"]


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        ("abcXdef", "ghij"),  # put in
        ("abcXYZdef", "ghij"),
        ("abcghi", "jklm"),  # left out
        ("abcXefg", "hijk"),  # replaced
        ("abcXYZWhij", "klmn"),
        ("abXcdYefg", "hijk"),
        ("abcdefgabcde", "fghi"),  # begun once more
    ],
)
def test_the_place_is_found_again(answer: str, goes_on: str) -> None:
    found = draft("abcdefghijklmnopq", answer, budget=4)
    assert found[0].startswith(goes_on[:2])
    assert draft("abcdefghijklmnopq", answer, budget=1) == [goes_on[0]]


def test_right_after_an_edit_both_ways_are_open() -> None:
    """X was put in before d, or stands for it."""
    found = draft("abcdefghij", "abcX", budget=8)
    assert {text[0] for text in found} == {"d", "e"}


def test_the_nearest_of_equal_places_ahead() -> None:
    text = "x = 1; y = 2; z = 3; "
    assert draft("a; b; c; d; ", "a; b; Q; ", budget=2)[0] == "d;"
    assert draft(text + "w", "x = 1; y = 5", budget=3)[0].startswith("; z")


def test_it_is_surer_the_longer_it_was_right() -> None:
    drafter = PredictionDrafter(tiny_tokenizer())
    confidence = [
        drafter.propose([view("abcdefghij" * 10, "abcdefghij" * 9 if number else "", number)], budgets(3))[0].confidence
        for number in range(2)
    ]
    assert list(confidence[0][1:]) == sorted(confidence[0][1:])
    assert confidence[0][1] < confidence[1][1] == 0.98


def test_nothing_without_a_prediction_and_none_of_another_sequence() -> None:
    drafter = PredictionDrafter(tiny_tokenizer())
    trees = drafter.propose([view("abc", "", 1), view(None, "ab", 2), view("abc", "", 3)], budgets(2, 2, 0))
    assert [tree.num_draft_tokens for tree in trees] == [2, 0, 0]
    drafter.end(1)
    drafter.end(7)
    [tree] = drafter.propose([view("xyz", "", 1)], budgets(2))
    assert continuations(tree) == ["xy"]


def test_an_answer_that_was_not_asked_about_in_between() -> None:
    """As if it had seen the answer token by token: rounds in which others drafted change nothing."""
    random = np.random.default_rng(0)
    prediction = "".join(random.choice(list("abcd \n"), 200))
    for _ in range(20):
        answer = "".join(random.choice(list("abcd \n"), 80)) if random.random() < 0.3 else prediction[:100]
        cut = int(random.integers(100))
        answer = answer[:cut] + "Q" * int(random.integers(3)) + answer[cut + int(random.integers(5)) :]
        often, once = PredictionDrafter(tiny_tokenizer()), PredictionDrafter(tiny_tokenizer())
        sequence = view(prediction)
        tokens = tiny_tokenizer().encode(answer)
        while tokens:
            often.propose([sequence], budgets(4))
            step = int(random.integers(1, 6))
            sequence.tokens.extend(tokens[:step])
            tokens = tokens[step:]
        assert often.propose([sequence], budgets(9)) == once.propose([sequence], budgets(9))


def test_a_prediction_that_is_no_text_is_refused() -> None:
    for prediction in ("", 5, ["a"], "half \ud800"):
        with pytest.raises(OptionError, match="--prediction"):
            SamplingParams(prediction=prediction)  # type: ignore[arg-type]
