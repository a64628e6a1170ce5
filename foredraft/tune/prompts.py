"""The prompts that are measured on where none are given, and when one is taken for random tokens."""

from foredraft.prompts import Prompt

RANDOM_SURPRISE = 0.75
"""A prompt whose tokens the target finds this improbable is taken for random: the mean of -log(probability), in that of
tokens drawn evenly from the vocabulary."""
LEAST_TOKENS_TO_JUDGE = 16

_REPORT = """The harbour commission met on Tuesday to discuss the new ferry timetable. Captain Ruth Alder told the \
commission that "the night boat has carried fewer than ten passengers on most evenings since March". The treasurer, \
Owen Pike, said that the night boat costs 410 pounds an evening and that "no grant will cover it after June". Several \
residents of the island spoke against ending it. Mary Quill, who works at the hospital on the mainland, said that \
"without the night boat the late shift cannot get home". The commission agreed to keep the night boat on Fridays and \
Saturdays until the end of September, to ask the hospital for a share of the cost, and to meet again in August. The \
commission also approved new railings for the eastern pier, at a cost of 2,300 pounds."""

_CODE = '''class Stack:
    """Values that come back in the reverse of their order."""

    def __init__(self):
        self.values = []

    def push(self, value):
        self.values.append(value)

    def pop(self):
        return self.values.pop()
'''

BUILT_IN = (
    Prompt("code/1", "code", "Write a Python function that returns the n-th Fibonacci number, with a docstring."),
    Prompt("code/2", "code", f"Add the methods `peek`, `is_empty` and `__len__` to this class:\n\n{_CODE}"),
    Prompt("chat/1", "chat", "Why is the sky blue during the day and red at sunset?"),
    Prompt("chat/2", "chat", "Suggest three names for a small bakery, and say why each would fit."),
    Prompt("summary/1", "summary", f"Summarise this report in three sentences, with a quotation:\n\n{_REPORT}"),
    Prompt("summary/2", "summary", f"List every person in this report, and quote what they said:\n\n{_REPORT}"),
    Prompt(
        "translation/1",
        "translation",
        "Translate to French: The night boat leaves at ten. Please be at the pier before a quarter to ten, and have "
        "your ticket ready.",
    ),
    Prompt(
        "translation/2",
        "translation",
        "Translate to German: The library is closed on Mondays. On all other days it is open from nine to five.",
    ),
)
