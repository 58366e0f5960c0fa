"""Every measure by the name of its variable in a trace, in the order of menus."""

from tracer.measures.attention import ATTENTION
from tracer.measures.measure import Measure
from tracer.measures.model_scalars import SCALARS
from tracer.measures.weights import WEIGHTS

MEASURES: dict[str, Measure] = {measure.name: measure for measure in (*ATTENTION, *WEIGHTS, *SCALARS)}
