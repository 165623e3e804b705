from pathlib import Path

from agentgym.cli import app

line = "ablate --world ListWorld --oracles none,P --horizons 2,3 --episodes 1 --workers 1 --out run"
app(line.split(), standalone_mode=False)
assert Path("run/arms.png").is_file()
