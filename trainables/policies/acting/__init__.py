"""Acting in numpy: what a policy does with observations, step by step.

actor      acts, without a memory
recurrent  acts with an LSTM
deciding   decides while nobody looks, with as little work in each step as there can be
dense      dense layers of actor and critic
hand_written  asks a policy that a person wrote
"""
