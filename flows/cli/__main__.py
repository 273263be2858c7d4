"""``python -m flows.cli`` is the program ``clusterdp``."""

from flows.cli.main import main

if __name__ == "__main__":
    main()
