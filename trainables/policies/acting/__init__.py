"""Acting in numpy: forward pass and sampling of a policy, without torch for vectors.

actor         actors without a memory
recurrent     actors with an LSTM
deciding      deciders: fast actors for rollouts, which postpone all but the choice of actions
dense         dense layers of actor and critic
on_device     actors with the learning policy's networks, on its device
distributions  sampling of actions from the outputs of a network
inference     policies that act and do not learn
hand_written  actors around a policy class that a user wrote
"""
