"""The program ``rnic``, also available as ``python -m open_rnic.host_driver``.

The module imports nothing else before ``main``, so that Ctrl-C ends the program silently from the start.
"""

import signal


def main() -> None:
    """Run the command line. While it is being imported, SIGINT ends the process, as there is nothing to clean up."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from open_rnic.host_driver.tools import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
