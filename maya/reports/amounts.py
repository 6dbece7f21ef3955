"""Numbers as people read them: bytes, times, dollars, counts."""

from __future__ import annotations

_BYTE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
ROUNDS_UP = 999.5
"""From here three digits do not suffice: 999.5 would be shown as 1000."""
_COUNT_UNITS = ("", "k", "M", "G", "T", "P", "E")


def format_bytes(count: int) -> str:
    """`71.2 GiB`, three significant digits, binary units as `torch` prints them."""
    if count < 1024:
        return f"{count} B"
    amount = count / 1024
    for unit in _BYTE_UNITS:
        if amount < ROUNDS_UP or unit == _BYTE_UNITS[-1]:
            break
        amount /= 1024
    return f"{_three_digits(amount)} {unit}"


def format_ms(milliseconds: float) -> str:
    """`4.21 us`, `12.3 ms`, `1.50 s`, `2 min 5 s`: three significant digits."""
    if milliseconds >= 120_000:
        minutes, seconds = divmod(round(milliseconds / 1000), 60)
        return f"{minutes} min {seconds} s"
    if milliseconds >= ROUNDS_UP:
        return f"{_three_digits(milliseconds / 1000)} s"
    if milliseconds * 1000 >= ROUNDS_UP or milliseconds == 0:
        return f"{_three_digits(milliseconds)} ms"
    return f"{_three_digits(milliseconds * 1000)} us"


def format_usd(dollars: float) -> str:
    """`$12.30`, `$0.0000123`: cents where they are enough, three significant digits below."""
    if dollars >= 1 or dollars == 0:
        return f"${dollars:,.2f}"
    if dollars >= 0.001:
        return f"${dollars:.3g}"
    decimals = 2 - _exponent(dollars)
    return f"${dollars:.{decimals}f}"


def format_count(count: float) -> str:
    """`1.23 M`, `812`: three significant digits, decimal prefixes."""
    amount = float(count)
    for unit in _COUNT_UNITS:
        if amount < ROUNDS_UP or unit == _COUNT_UNITS[-1]:
            break
        amount /= 1000
    return f"{_three_digits(amount)} {unit}".rstrip()


def format_rate(per_second: float) -> str:
    """`123,456`, `12.3`: what fits a throughput."""
    return f"{per_second:,.0f}" if per_second >= 100 else _three_digits(per_second)


def format_percent(share: float) -> str:
    """`41.2%`, `<0.1%`."""
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share * 100:.1f}%"


def _three_digits(amount: float) -> str:
    if amount == 0:
        return "0"
    decimals = max(0, 2 - _exponent(amount))
    return f"{amount:.{decimals}f}"


def _exponent(amount: float) -> int:
    """Decimal exponent after rounding to three significant digits."""
    return int(f"{amount:.2e}".partition("e")[2])
