"""The commands, one file or package each, named after it; what several of them share is in `pinlater.cli`."""
