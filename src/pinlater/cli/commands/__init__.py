"""The commands, one file or package each, named after it; code for several commands is in `pinlater.cli`."""
