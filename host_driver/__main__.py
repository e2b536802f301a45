"""The program ``rnic``, which is ``python -m open_rnic.host_driver`` as well.

It imports nothing before ``main``, so that Ctrl-C ends it without a word from the first moment on.
"""

import signal


def main() -> None:
    """Run the command line. Until that is imported, a SIGINT ends the process, with nothing to clear away."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from open_rnic.host_driver.tools import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
