"""What a run reports: one JSON object a line, on the terminal and in a file."""
import json
from pathlib import Path
import time


class Log:
    def __init__(self, path: Path) -> None:
        self._path, self._start, self._last = path, time.monotonic(), 0.

    def __call__(self, stage: str, **values) -> None:
        """Numbers are cut to five digits."""
        seconds = round(time.monotonic() - self._start, 1)
        short = {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in values.items()}
        line = json.dumps({"at": seconds, "stage": stage, **short})
        print(line, flush=True)
        with self._path.open("a", encoding="utf-8") as f:
            f.write(line + "\n")

    def due(self, every: float = 15.) -> bool:
        """True when that many seconds have passed since it last was: for progress within a
        stage."""
        now = time.monotonic()
        if now - self._last < every:
            return False
        self._last = now
        return True
