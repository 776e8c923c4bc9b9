"""The command line, the same as the command `ballast`: `python -m ballast inspect model.safetensors`."""

from _ballast_command import main

if __name__ == "__main__":
    main()
