"""Child processes: how they begin, what is asked of them, how they end.

starting    a child's first instants
worker      one that computes one thing after the other, and may be started early
child       a child that is asked and answers
program     a child that looks like a program of its own
supervised  a child that leaves no process behind
reaping     asks the reaper to start those
reaper      the program that does so, and kills what they leave
printing    what they print costs them nothing on a full disk
ending      children that die with their parents
tidying     what tidies up after killed processes
"""
