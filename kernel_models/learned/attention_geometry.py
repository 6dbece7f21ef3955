"""How much work one attention call is: pairs, tiles and bytes, whatever runs it.

A call's columns: b, h, h_kv, s_q, s_kv, d, d_v (sizes), causal (0 or 1, aligned to the bottom right), window
(keys a query sees at most; 0 all), item_bytes (of Q and of the products' operands), kv_bytes (of an element
of K and V in memory), out_bytes, slowdown (of the tiles, for kernels without measurements).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.columns import Floats
from maya.kernel_models.learned.calls import Calls

QUERY_TILE, KEY_TILE = 128.0, 128.0
"""Rows of Q and of K a thread block holds (FlashAttention-2 and -3: 128 x 64..176 by head size)."""
HEAD_STEP = 32.0
"""Head sizes are padded to a multiple of this (FlashAttention-2 instantiates 32, 64, 96, 128, ...)."""


@dataclass(frozen=True)
class Geometry:
    """k calls.

    Attributes:
        heads: b x h.
        pairs: query-key pairs of one head that count.
        tiles: tiles that are computed, a head's share of them.
        query_tiles: blocks of queries, a head's share of them.
        longest: tiles of the longest row of tiles.
        flops: of the exact pairs, two operations a multiply-add.
        tile_flops: of one tile, head sizes padded.
        query_bytes, key_value_bytes, output_bytes: read or written once.
    """

    heads: Floats
    pairs: Floats
    tiles: Floats
    query_tiles: Floats
    longest: Floats
    flops: Floats
    tile_flops: Floats
    query_bytes: Floats
    key_value_bytes: Floats
    output_bytes: Floats


def seen_pairs(queries: Floats, keys: Floats, causal: Floats, window: Floats) -> Floats:
    """Pairs that a mask leaves: query i sees key j if i + keys - queries - window < j <= i + keys - queries.

    A window without a causal mask reaches as far to both sides.
    """
    offset = keys - queries
    limited = (window > 0) & (window < keys)
    reach = np.where(limited, window, keys + queries)
    lower = _triangle(queries, offset) - _triangle(queries, offset - reach)
    band = np.minimum(queries * keys, queries * np.minimum(keys, 2.0 * reach - 1.0))
    result: Floats = np.where(causal > 0, lower, np.where(limited, band, queries * keys))
    return np.maximum(result, 1.0)


def _triangle(queries: Floats, offset: Floats) -> Floats:
    """Sum over i < queries of max(0, i + 1 + offset)."""
    rows = np.maximum(queries + np.minimum(offset, 0.0), 0.0)
    result: Floats = rows * (rows + 1.0) / 2.0 + rows * np.maximum(offset, 0.0)
    return result


def geometry(calls: Calls, packed: NDArray[np.bool_] | None = None) -> Geometry:
    """Of every call; `packed`: [k] where query heads that share keys share a tile (all where None).

    Packing pays only where a tile of one head's queries would stay partly empty.
    """
    queries, keys, causal, window = (calls[name] for name in ("s_q", "s_kv", "causal", "window"))
    heads = calls["b"] * calls["h"]
    pairs = seen_pairs(queries, keys, causal, window)
    query_tiles, key_tiles = np.ceil(queries / QUERY_TILE), np.ceil(keys / KEY_TILE)
    group = np.maximum(calls["h"] / calls["h_kv"], 1.0)
    sharing = np.ceil(queries * group / QUERY_TILE) / (group * query_tiles)
    if packed is not None:
        sharing = np.where(packed, sharing, 1.0)
    # A window's edge cuts a tile at both ends.
    tile_window = np.where(window > 0, np.ceil(window / KEY_TILE) + 1.0, 0.0)
    tiles = seen_pairs(query_tiles, key_tiles, causal, tile_window)
    longest = np.where(tile_window > 0, np.minimum(key_tiles, tile_window), key_tiles)
    padded = np.ceil(calls["d"] / HEAD_STEP) + np.ceil(calls["d_v"] / HEAD_STEP)
    return Geometry(
        heads=heads,
        pairs=pairs,
        tiles=tiles * sharing,
        query_tiles=query_tiles * sharing,
        longest=longest,
        flops=2.0 * heads * pairs * (calls["d"] + calls["d_v"]),
        tile_flops=2.0 * QUERY_TILE * KEY_TILE * HEAD_STEP * padded,
        query_bytes=heads * queries * calls["d"] * calls["item_bytes"],
        key_value_bytes=calls["b"] * calls["h_kv"] * _keys_read(calls) * _width(calls) * calls["kv_bytes"],
        output_bytes=heads * queries * calls["d_v"] * calls["out_bytes"],
    )


def _width(calls: Calls) -> Floats:
    return calls["d"] + calls["d_v"]


def _keys_read(calls: Calls) -> Floats:
    """Keys that any query sees."""
    window = calls["window"]
    result: Floats = np.where(window > 0, np.minimum(calls["s_kv"], window + calls["s_q"]), calls["s_kv"])
    return result
