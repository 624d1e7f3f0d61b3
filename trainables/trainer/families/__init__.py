"""Families of algorithms: the base classes of algorithms that learn in a similar way.

steps            one training step, for each family
actor_critic     the base of methods that learn from the latest samples
policy_gradient  the base of those that take one step of the policy gradient on each batch
off_policy       the base of actor-critics that learn from a replay
"""
