"""The command `pinlater`: `main` finds and runs commands, `commands` holds them, the other modules are what several of them share."""
