"""What a thread holds of the rows that were materialized in an attempt."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.engine.frame import Frame, concat


@dataclass
class MaterializedRows:
    """The rows that one thread holds, by temporary PState: frames with the columns "0", "1", … in the order they came.

    `bytes` is what all of them take, values of Python in their packed form.
    """

    frames: dict[str, list[Frame]] = field(default_factory=dict)
    bytes: int = 0

    def merged(self, temp: str) -> Frame | None:
        """All rows of a temporary PState as one frame; None if there are none."""
        frames = self.frames.get(temp)
        if not frames:
            return None
        if len(frames) > 1:
            frames[:] = [concat(frames)]
        return frames[0]
