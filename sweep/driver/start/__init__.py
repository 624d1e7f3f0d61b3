"""The start of a driver: from a spec or the folder of a sweep to a driver's parts.

prepare   reads and checks a spec, and prepares the launch of a driver
creation  creates a new sweep from a spec: plugins, checks, folder
launch    opens an existing sweep and assembles its driver's parts
changing  another space or later stopping criteria: which ended trials continue
"""
