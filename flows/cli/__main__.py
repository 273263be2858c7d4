"""``python -m flows.cli`` is the program ``clusterdp``."""

import gc


def main() -> None:
    """Run the program; it collects garbage once it has loaded what a command needs."""
    gc.disable()
    from flows.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
