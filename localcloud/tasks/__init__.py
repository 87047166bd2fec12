"""Cloud Tasks on a laptop: the real wire, the real rules of dispatch, no account."""

from localcloud.tasks.counts import Counts
from localcloud.tasks.server import RunningTasks, start_tasks

__all__ = ["Counts", "RunningTasks", "start_tasks"]
