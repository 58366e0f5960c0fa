"""What attention heads do: exact statistics of every row, from q and k, in linear memory."""

from tracer.heads.averages import head_means, probe_errors, probe_scores
from tracer.heads.blocks import HeadStats, stats
from tracer.heads.definitions import attention_by_offset, pattern
from tracer.heads.explicit import stats_from_pattern
from tracer.heads.views import crop, thumbnail

__all__ = [
    "HeadStats", "attention_by_offset", "crop", "head_means", "pattern", "probe_errors", "probe_scores", "stats",
    "stats_from_pattern", "thumbnail",
]  # fmt: skip
