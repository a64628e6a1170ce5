"""Traces for people: in the terminal, and as a page."""

from foredraft.inspect.page import page
from foredraft.inspect.terminal import show

__all__ = ["page", "show"]
