import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import collect

for task in (
    "ABTesting",
    "ApplyPhDEmail",
    "CanvasArrangeExam",
    "MachineOperating",
    "PayableInvoiceChecker",
):
    (played,) = collect(OraclePolicy(task), agentgym.spec(task), [0])
    assert played.reward == 1.0, task
