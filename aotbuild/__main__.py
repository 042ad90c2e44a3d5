"""`python -m aotbuild` is the command `aotbuild`."""

from aotbuild.cli import main

if __name__ == "__main__":
    main()
