"""The command `pinlater`: `main` finds and runs commands, `commands` holds them, the other modules are for several commands."""
