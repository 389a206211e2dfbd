"""`python -m longstride` is the command `longstride`."""

from longstride.cli.entry import run

if __name__ == "__main__":
    run()
