"""Training algorithms, one module each under the algorithm's name; `command` runs any program."""
