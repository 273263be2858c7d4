"""What files cost, worked out from themselves, as it is shown to people."""

from typing import TYPE_CHECKING

from flows.runtime.terminal import pairs, paragraph, table

if TYPE_CHECKING:
    from flows.operate.verify import LossResult
    from flows.released.loss.loss import Loss


def loss_text(result: "LossResult") -> str:
    """What each file costs, what that is made of, and what has to be taken on trust."""
    return "\n\n".join(_loss_text(one) for one in result.releases)


def _loss_text(one: "Loss") -> str:
    said = f"epsilon {one.stated_epsilon:.12g}, delta {one.stated_delta:g}"
    found = f"epsilon {one.epsilon:.12g}, delta {one.delta:g}"
    verdict = "costs what it says, at most" if one.holds else "COSTS MORE THAN IT SAYS"
    rows = [
        (each.metric or "–", each.name, f"{each.epsilon:.6g}", f"{each.delta:g}", each.how)
        for each in one.parts
    ]
    return "\n".join(
        [
            f"{one.path} ({one.release_id}) {verdict}",
            "",
            *pairs({"stated": said, "worked out": found} | _household(one)),
            *(line for rule in one.broken for line in pairs({"broken": rule})),
            "",
            *table(("of", "published", "epsilon", "delta", "known"), rows),
            "",
            "Taken on trust:",
            *(line for each in one.trusted for line in paragraph(each)),
        ]
    )


def _household(one: "Loss") -> dict[str, str]:
    """What whoever pays for several units pays in all."""
    if one.rows_each == 1:
        return {}
    epsilon, delta = one.household
    return {f"{one.rows_each} units": f"epsilon {epsilon:.12g}, delta {delta:g}"}
