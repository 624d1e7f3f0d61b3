"""The command line: arguments in, text out; the only room that prints.

main          the program: commands, exit codes, messages
options       options and ways of answering that several commands share
train         init, run, resume
results       ls, status, results, show, best, explain, report, curves
control       stop, pause, unpause, clone, set
check         validate, check-env, doctor, verify, sync
export        play, export-model, ui, trust
disk          gc, rm
completion    completion, and what is offered for each argument
tables        a sweep as tables
trial_tables  one trial as text
check_tables  what the commands of `check` print
live          what a person sees while a sweep runs
terminal      the console, which outlives its reader
"""
