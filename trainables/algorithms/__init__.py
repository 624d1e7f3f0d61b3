"""Training algorithms, one file each whose name is theirs; and `command`, a program of any kind."""
