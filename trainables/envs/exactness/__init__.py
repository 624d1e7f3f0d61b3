"""Exactness of an environment that comes back from a checkpoint: measured.

levels      the levels A to D
known       the levels of gymnasium's classic control, measured before
measuring   measures in a child process, once for each settings
comparison  copies run side by side, every number compared
random_actions  what is drawn for them, by their masks
traces      what stays outside of an environment's state
rendering   whether drawing changes anything
watching    names the call that does not come back
"""
