"""``python -m geoattn``: the command line."""

from geoattn.cli import main

if __name__ == "__main__":
    main()
