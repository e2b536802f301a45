"""Protocol machines whose behaviour stands in one table, without sockets or clocks.

A table maps (state, input) to an action and the next state::

    TABLE = {
        (State.IDLE, Input.START): (Door._start, State.WAIT),
        (State.WAIT, Input.KNOCK): (Door._open, State.OPEN),
        (State.WAIT, Input.TIMEOUT): (Door._give_up, State.CLOSED),
    }

An action is a method of the machine. It gets the facts of the input and returns the events that the input causes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

_State = TypeVar("_State", bound=Enum)
_Input = TypeVar("_Input", bound=Enum)
_Event = TypeVar("_Event")


class ProtocolError(Exception):
    """The table has no entry for this input in this state."""

    def __init__(self, state: Enum, given: Enum) -> None:
        self.state = state
        self.given = given
        super().__init__(f"{given.name} is not possible in state {state.name}")


class Otherwise(Exception):  # noqa: N818 -- it chooses a state, it reports no error
    """Raised by an action to enter another state than the table's, with these events."""

    def __init__(self, state: Enum, *events: object) -> None:
        super().__init__()
        self.state = state
        self.events = list(events)


@dataclass(frozen=True)
class Facts:
    """The facts that come with an input. A fact that an input does not have keeps its default."""

    now: float = 0.0  # seconds, on any clock that never goes back
    octets: bytes = b""
    what: str = ""  # a description for a person


class Machine(ABC, Generic[_State, _Input, _Event]):
    """The driver of a table.

    ``deadline`` is the time at which ``tick`` must be called next; None means never. An action sets it, and it holds
    until the machine enters a state without an entry for ``_timeout``.
    """

    state: _State
    deadline: float | None

    @classmethod
    @abstractmethod
    def _table(cls) -> Mapping[tuple[_State, _Input], tuple[Callable[..., list[_Event]], _State]]:
        """The table."""

    @classmethod
    def _timeout(cls) -> _Input | None:
        """The input for a deadline that has passed; None if no state has a deadline."""
        return None

    def tick(self, now: float) -> list[_Event]:
        """Note the time."""
        timeout = self._timeout()
        return [] if timeout is None or self.deadline is None or now < self.deadline else self.take(timeout)

    def take(self, given: _Input, facts: Facts = Facts()) -> list[_Event]:
        """Take an input; raises ProtocolError if it is illegal in this state."""
        action, after = self._table().get((self.state, given)) or self._illegal(given)
        try:
            events = action(self, facts)
        except Otherwise as other:
            after, events = other.state, other.events  # type: ignore[assignment]
        self.state = after
        if (after, self._timeout()) not in self._table():
            self.deadline = None
        return events

    def _illegal(self, given: _Input) -> tuple[Callable[..., list[_Event]], _State]:
        """The action and the next state for an input without an entry in the table."""
        raise ProtocolError(self.state, given)
