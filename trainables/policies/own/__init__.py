"""Parts of a policy written by users: checked before training, then trained and used to act.

module        a torch module in place of actor and critic
distribution  a distribution of actions, made from the actor's outputs
"""
