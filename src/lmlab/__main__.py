"""`python -m lmlab` is the command `lmlab`."""

from lmlab.cli import main

if __name__ == "__main__":
    main()
