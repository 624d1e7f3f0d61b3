"""The state of an environment as plain data.

capture  an object's state, captured and put back
plain    values as plain data
mujoco   MuJoCo's objects
replay   a seed and the actions since as the state
"""
