"""The task that a test process hands over to its simulation."""

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "OPEN_RNIC_MUTATION"
KILLED = 3  # exit code of a fork in which a test failed


@dataclass(frozen=True)
class Task:
    """The tests' module, the mutants' numbers, the number of concurrent forks, and the file for what became of each.

    The file has lists of numbers in JSON: ``killed``, and ``unsure``, those of them whose forks ended by a signal. That
    may be the one of the limit of processor time, which depends on the machine.
    """

    module: str
    mutants: list[int]
    jobs: int
    outcome: str

    def variable(self) -> dict[str, str]:
        """Return the task as an environment variable."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def read(cls) -> "Task":
        """Read the task from the environment."""
        return cls(**json.loads(os.environ[VARIABLE]))
