from sb3_contrib import MaskablePPO

import agentgym
from agentgym.wrappers import DiscreteActions, FeatureObservations

env = FeatureObservations(DiscreteActions(agentgym.make("GridWorld")))
MaskablePPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1).learn(8)
