"""Tools with which a language model tunes within limits that a person sets: `sweep mcp`.

permission  the limits: spec files, root, trials, budget; and how much of them is used
narrowing   the only change of a spec that a model may make: a smaller space
running     sweeps and validations as processes of their own
tools       the tools, their arguments and answers
server      the protocol (MCP) on standard input and output
"""
