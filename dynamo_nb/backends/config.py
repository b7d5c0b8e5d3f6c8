"""Settings handed to the optional backend `inductor`; frames are not recompiled when they change."""

max_autotune: bool = False
epilogue_fusion: bool = False


def patches() -> dict[str, bool]:
    """The settings that differ from their defaults, by Inductor's names."""
    chosen = {"max_autotune": max_autotune, "epilogue_fusion": epilogue_fusion}
    return {name: value for name, value in chosen.items() if value}
