"""One command, `pinlater`. Each module holds one group of commands; `main` knows where each is, and loads it when it is asked for."""
