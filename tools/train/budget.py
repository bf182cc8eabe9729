"""How long a stage trains: a number of steps, or a stretch of time whatever the machine's speed."""
import itertools
import time
from typing import Iterator


class Budget:
    """Yields (step, share done in 0..1).

    By steps a run can be repeated exactly; by seconds it cannot.
    """

    def __init__(self, steps: int, seconds: float | None = None) -> None:
        self.steps, self.seconds = steps, seconds

    def __iter__(self) -> Iterator[tuple[int, float]]:
        start = time.monotonic()
        for step in itertools.count():
            if self.seconds is None:
                done = step / self.steps
            else:
                done = (time.monotonic() - start) / self.seconds
            if done >= 1 and step > 0:    # even the shortest time has one step
                return
            yield step, min(done, 1.)
