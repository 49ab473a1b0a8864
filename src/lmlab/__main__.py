"""`python -m lmlab` is the command `lmlab`."""

import sys

if __name__ == "__main__":
    try:
        from lmlab.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    main()
