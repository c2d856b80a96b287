"""The pure rules, without any store."""
