"""foredraft: language models that answer faster without changing a word."""

__version__ = "0.1.0"
