"""Output shapes of operators for which torch has no meta kernel."""


def register_missing_shapes() -> None:
    """Teach torch's meta device the operators it lacks. Idempotent within a process."""
