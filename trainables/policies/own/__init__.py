"""Parts of a policy that a person brings: tried before anything is trained, learnt, acted with.

module        a torch module in the place of actor and critic
distribution  how a head says what is done
"""
