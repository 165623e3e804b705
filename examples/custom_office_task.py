"""A custom office task: draw a mailbox, ask a question about the mails, plan and check the answer.

Needs: pip install 'agentgym-suite[office]'

Prints: the oracle policy's calls and score, and the failures of an empty answer.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta

import agentgym
from agentgym.envs.loca.kit import OfficeConfig, OfficeTask, Plan, as_number, read_folder, write
from agentgym.office.email import Email, Mail
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout

ME, FILE = "ada@mcp.com", "total.txt"


class SumInvoices(OfficeTask[OfficeConfig]):
    """Sum the invoices in a mailbox."""

    servers = ("filesystem", "email", "claim_done")
    outputs = (FILE,)  # the files that the agent may create
    tokens_per_unit = 165.0  # approximate length of an email in tokens
    text = f"Add up the invoices in my inbox. Write the total in EUR with two decimals to {FILE}."

    def draw(self, size: int) -> None:  # fills the servers; all random numbers come from self.rng
        email, self.truth = self.office.get(Email), 0
        email.add_user(ME)
        email.login_as(ME)
        for k in range(size):
            cents = int(self.rng.integers(1, 10**6))
            is_invoice = k == 0 or self.rng.random() < 0.5
            text = f"{'Please pay' if is_invoice else 'You save'} {cents / 100:.2f} EUR."
            sent = self.start - timedelta(hours=k + 1)
            email.deliver(Mail("shop@example.com", ME, "Your order", text, sent))
            self.truth += cents if is_invoice else 0

    def plan(self) -> Plan:  # yields steps that solve the task; hints come from these steps
        amounts = yield from read_folder(self.read_amount)
        text = f"{sum(amounts) / 100:.2f}"
        label, thing = f"Write {FILE}.", f"file {FILE}"
        yield write(label, FILE, "write_file", thing=thing, same=("path",), path=FILE, content=text)

    def read_amount(self, mail: dict[str, str]) -> int | None:
        found = re.search(r"Please pay (\d+)\.(\d\d) EUR", mail["body"])
        return int(found[1] + found[2]) if found else None

    def task_failures(self) -> Iterator[str]:  # yields the errors in the final state
        written = self.files.read_text(FILE) if self.files.is_file(FILE) else ""
        value = as_number(written, "EUR")
        if value is None or round(100 * value) != self.truth:
            yield f"{FILE} does not contain {self.truth / 100:.2f}"
        yield from (f"the mail {mail.subject!r} was sent" for mail in self.office.get(Email).sent())


def main(arguments: Sequence[str] | None = None) -> float:
    """Play the task and return the oracle policy's score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=8_000, help="tokens of the state")
    length = parser.parse_args(arguments).length
    agentgym.register(SumInvoices, presets={"64k": {"length": 64_000}})
    env = agentgym.make("SumInvoices", length=length, oracles="SP", labels=True)
    trajectory = rollout(OraclePolicy("SumInvoices"), env, seed=3)
    for step in trajectory.steps:
        print(step.info["labels"], step.reply.text.replace("\n", " ")[:100])
    print("score:", trajectory.reward)
    env.reset(seed=3)
    *_, info = env.step(agentgym.render(agentgym.ToolCall("claim_done", {})))
    print(info["detail"].report["faults"])
    return trajectory.reward


if __name__ == "__main__":
    main()
