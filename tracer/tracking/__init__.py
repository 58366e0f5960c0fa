"""What a run tells the experiment tracker of a team: W&B, TensorBoard, MLflow or Trackio, each by its own library.

1. `scalars` flattens a record to `attn/L3H5/entropy: 1.2`, `loss/train: 3.4`, ...: all of it, for any logger.
2. `Tracking` sends a service what a person can read: losses, mean and range of each measure over the heads, the heads
   that stand out, pictures of all heads now and then, findings as alerts, and where the dashboard shows the run.
3. A service that fails is said once and left alone; the training goes on.
"""

from tracer.tracking.scalars import scalars
from tracer.tracking.tracking import TRACKERS, Tracking

__all__ = ["TRACKERS", "Tracking", "scalars"]
