"""What a process with a simulation is told by the one that started it."""

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "OPEN_RNIC_MUTATION"
KILLED = 3  # exit code of a fork in which a test has failed


@dataclass(frozen=True)
class Task:
    """The module of the tests, the mutants' numbers, how many to try at a time, and the file for those killed."""

    module: str
    mutants: list[int]
    jobs: int
    outcome: str

    def variable(self) -> dict[str, str]:
        """The environment variable that hands it over."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def read(cls) -> "Task":
        """What that variable says."""
        return cls(**json.loads(os.environ[VARIABLE]))
