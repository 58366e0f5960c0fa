"""`python -m tracer` is the command line, so that launchers such as `accelerate launch -m tracer` can start it."""

from tracer.cli.commands import main

if __name__ == "__main__":
    main()
