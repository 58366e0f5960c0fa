"""The scores of a record, with some heads off: on its probes, by its means and errors, all later patterns anew."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.outcomes import per_head
from tracer.ablate.planner import inputs, zeroed
from tracer.data.probes import CONTROL_ROWS, ProbeR
from tracer.heads.averages import means_and_errors, of_probes
from tracer.measures import CONTROLS, REPEAT_MEASURES, TEXT_MEASURES
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel

FROM_ROW_1 = slice(1, None)


def scores_without(
    model: HeadModel, off: Collection[Head], *, repeat: ProbeR, text: Int[Tensor, "batch pos"]
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """The variables of a trace that are about heads, with these writing nothing; the names are the trace's.

    A head that is off still looks: its own scores are of what it looks at. ValueError where a head can't be off.
    """

    def on(
        tokens: Tensor, names: Collection[str], rows: slice = FROM_ROW_1, repeats: Tensor | None = None
    ) -> dict[str, Tensor]:
        with zeroed(model, tokens, off):
            return per_head(model, tokens, lambda call: means_and_errors(call.stats(repeats), rows, names))

    copied, tokens, control = repeat.second_copy, repeat.tokens, repeat.control[:CONTROL_ROWS]
    found = of_probes(
        on(inputs(model, text), TEXT_MEASURES),
        on(tokens, REPEAT_MEASURES, copied, tokens),
        on(control, CONTROLS, copied, tokens[:CONTROL_ROWS]),
    )
    return {name: values.cpu().numpy() for name, values in found.items()}
