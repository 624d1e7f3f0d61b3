"""Many environments stepped side by side.

base         what a step of all environments gives
config       how they are stepped
factory      which kind the settings ask for
separate     one after another, in this process
remote       in processes of their own
native       all at once, as one object
slot         one environment: created, stepped, replaced
remote_slot  one environment in a process of its own: both ends
restarts     replaces environments that fail
horizon      time limits
"""
