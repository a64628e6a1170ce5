"""Keys and values of past positions: paged, shared by sequences that begin alike, rolled back by not counting."""

from foredraft.cache.block_table import BlockTable
from foredraft.cache.blocks import OutOfBlocksError
from foredraft.cache.paged import PagedCache

__all__ = ["BlockTable", "OutOfBlocksError", "PagedCache"]
