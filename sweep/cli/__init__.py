"""The command line: parses arguments and prints; the only package that prints.

main          the program: commands, exit codes, messages
options       options and output functions that several commands share
train         commands init, run, resume
results       commands ls, status, results, show, best, explain, report, curves
control       commands stop, pause, unpause, clone, suggest, set, mcp
check         commands validate, check-env, doctor, verify, sync
export        commands play, export-model, ui, trust
disk          commands gc, rm
completion    command completion, and the candidates for each argument
tables        renders a sweep as tables
trial_tables  renders one trial as text
check_tables  renders the output of the commands in `check`
live          displays a running sweep
terminal      the console, which survives the loss of its reader
"""
