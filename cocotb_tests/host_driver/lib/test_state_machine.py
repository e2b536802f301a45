"""The driver of tables."""

from enum import Enum, auto

import pytest

from open_rnic.host_driver.lib.state_machine import Facts, Machine, Otherwise, ProtocolError


class State(Enum):
    SHUT = auto()
    WAITING = auto()
    OPEN = auto()
    BROKEN = auto()


class Input(Enum):
    KNOCK = auto()
    ANSWER = auto()
    TIMEOUT = auto()


class Door(Machine):
    def __init__(self):
        self.state = State.SHUT
        self.deadline = None

    @classmethod
    def _table(cls):
        return TABLE

    @classmethod
    def _timeout(cls):
        return Input.TIMEOUT

    def _knock(self, given):
        self.deadline = given.now + 5
        return ["knocked"]

    def _answer(self, given):
        if given.what == "kick":
            raise Otherwise(State.BROKEN, "crash")
        return ["opened"]

    def _late(self, _):
        return ["late"]


TABLE = {
    (State.SHUT, Input.KNOCK): (Door._knock, State.WAITING),
    (State.WAITING, Input.ANSWER): (Door._answer, State.OPEN),
    (State.WAITING, Input.TIMEOUT): (Door._late, State.SHUT),
}


def test_an_action_runs_in_the_old_state_and_the_table_gives_the_new_one():
    door = Door()
    assert door.take(Input.KNOCK, Facts(now=10)) == ["knocked"]
    assert (door.state, door.deadline) == (State.WAITING, 15)
    assert door.take(Input.ANSWER) == ["opened"]
    assert (door.state, door.deadline) == (State.OPEN, None)


def test_an_action_may_choose_another_state():
    door = Door()
    door.take(Input.KNOCK)
    assert door.take(Input.ANSWER, Facts(what="kick")) == ["crash"]
    assert (door.state, door.deadline) == (State.BROKEN, None)


def test_time_counts_from_the_deadline_on():
    door = Door()
    assert door.tick(1000) == []
    door.take(Input.KNOCK, Facts(now=10))
    assert door.tick(14.9) == []
    assert door.tick(15) == ["late"]
    assert (door.state, door.deadline) == (State.SHUT, None)


def test_an_illegal_input_is_named_and_changes_nothing():
    door = Door()
    with pytest.raises(ProtocolError, match="ANSWER is not possible in state SHUT") as refused:
        door.take(Input.ANSWER)
    assert (refused.value.state, refused.value.given) == (State.SHUT, Input.ANSWER)
    assert door.state is State.SHUT
