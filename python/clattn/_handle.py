"""C objects that somebody may close while others use them."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

from clattn.errors import error_of


class Handle:
    """A C object. `with handle as pointer` uses it, and it is released when it has been closed and nobody uses it."""

    def __init__(self, name: str, holder: Any, release: Callable[[Any], None]) -> None:
        self._name, self._holder, self._release = name, holder, release
        self._lock, self._users, self.closed = threading.RLock(), 0, False  # a signal handler may come in between

    def __enter__(self) -> Any:
        with self._lock:
            if self.closed:
                raise error_of("INVALID_ARGUMENT", f"the {self._name} is closed")
            self._users += 1
            return self._holder[0]

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if self.closed and self._users == 0:
                self._release(self._holder)

    def close(self) -> None:
        """Releases the object, now or after the last of those that use it; further calls do nothing."""
        with self._lock:
            if not self.closed:
                self.closed = True
                if self._users == 0:
                    self._release(self._holder)

    def __del__(self) -> None:
        self.close()


class Closing:
    """What `with` closes at its end."""

    @abstractmethod
    def close(self) -> None:
        """Releases what it has; further calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
