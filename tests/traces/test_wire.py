"""Hand-written encoding against protobuf's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maya.traces import wire
from maya.traces.chakra_schema import messages

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(
    st.one_of(
        st.integers(0, (1 << 64) - 1), st.sampled_from([(1 << 7 * i) + d for i in range(9) for d in (-1, 0)])
    )
)
def test_number_as_protobuf_reads_it(value: int) -> None:
    node = messages().Node.FromString(wire.number(1, value))
    assert node.id == value
    assert node.SerializeToString() == (wire.number(1, value) if value else b"")


@given(name=st.text(max_size=20), value=INT64)
def test_int64_attribute(name: str, value: int) -> None:
    node = messages().Node.FromString(wire.attribute(name, "int64", value))
    assert (node.attr[0].name, node.attr[0].int64_val) == (name, value)


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("bool", 1),
        ("int32", -5),
        ("uint32", 4_000_000_000),
        ("uint64", (1 << 64) - 1),
        ("string", "ä"),
        ("bytes", b"\0\xff" * 99),
    ],
)
def test_attribute_of_each_type(scalar: str, value: int | str | bytes) -> None:
    for outer, of_metadata in (("Node", False), ("GlobalMetadata", True)):
        encoded = wire.attribute("a", scalar, value, of_metadata=of_metadata)
        parsed = getattr(messages(), outer).FromString(encoded)
        assert parsed.attr[0].WhichOneof("value") == f"{scalar}_val"
        assert getattr(parsed.attr[0], f"{scalar}_val") == value
        assert parsed.SerializeToString() == encoded


def test_text_that_utf8_cannot_hold_stays_readable() -> None:
    assert messages().Node.FromString(wire.text(2, "a\udc80b")).name == "a?b"
