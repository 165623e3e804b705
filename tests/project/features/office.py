import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import collect

TASKS = "ABTesting ApplyPhDEmail CanvasArrangeExam MachineOperating PayableInvoiceChecker"
for task in TASKS.split():
    (played,) = collect(OraclePolicy(task), agentgym.spec(task), [0])
    assert played.reward == 1.0, task
