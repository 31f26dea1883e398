"""`python -m app` is `trainjob-advisor`."""

from app.cli import main

if __name__ == "__main__":
    main()
