"""`python -m pinlater` is the command `pinlater`."""

from pinlater.cli.main import main

if __name__ == "__main__":
    main()
