"""The forms of a report, by name."""

from __future__ import annotations

from maya.reports.report import Renderer

FORMATS = ("text", "json", "perfetto")


def renderer_for(form: str, *, colour: bool = False) -> Renderer:
    """The renderer of one form.

    Args:
        form: one of `FORMATS`.
        colour: ANSI styles in text.

    Raises:
        ValueError: no such form.
    """
    if form == "text":
        from maya.reports.text import TextRenderer

        return TextRenderer(colour=colour)
    if form == "json":
        from maya.reports.json_text import JsonRenderer

        return JsonRenderer()
    if form == "perfetto":
        from maya.reports.perfetto import PerfettoRenderer

        return PerfettoRenderer()
    raise ValueError(f"no report of the form {form!r}; known: {', '.join(FORMATS)}")
