"""What is completed where no prompts are given."""

BUILT_IN = (
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n    if n < 2:\n        return n\n',
    "1. The cat sat on the mat.\n2. The dog sat on the mat.\n3. The cow sat on the mat.\n4. The",
    '[{"name": "Ada", "born": 1815}, {"name": "Alan", "born": 1912}, {"name": "Grace", "born":',
    "English: good morning. French: bonjour. German: guten Morgen. Chinese: 早上好. Spanish:",
)
