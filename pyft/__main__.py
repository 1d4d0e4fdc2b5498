"""`python -m pyft`: the command where its script is on no path."""

from pyft.cli.main import main

if __name__ == "__main__":
    main()
