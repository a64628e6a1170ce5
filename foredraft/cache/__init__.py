"""Keys and values of past positions: paged, shared by requests that begin alike, rolled back by forgetting."""

from foredraft.cache.paged import PagedCache
from foredraft.cache.sequence import CacheSequence

__all__ = ["CacheSequence", "PagedCache"]
