"""The longest durations of the parts of a close, in seconds. `close_timeout` includes their sum."""

from __future__ import annotations

WORK_SECONDS = 15.0
"""For work that still runs when `merge.at_close` is over: merges, upkeep, the search for logs. All run in
parallel. Work that takes longer is abandoned and repeated at the next start."""
WATCH_SECONDS = 5.0
"""For the watch's last question to Spark."""
STOP_SECONDS = 10.0
"""For Spark to stop inside its Java process. After that, the process is killed."""
JAVA_SECONDS = 15.0
"""For the Java process to exit by itself. After that, it is killed."""
KILLED_SECONDS = 5.0
"""For a killed process to end, and for the calls that wait for it to fail."""
OUTPUT_SECONDS = 2.0
"""For the last lines of its output: a child process may keep the pipe open."""

CLOSE_SECONDS = WORK_SECONDS + WATCH_SECONDS + STOP_SECONDS + JAVA_SECONDS + KILLED_SECONDS + OUTPUT_SECONDS
"""The longest time that closing may take after `merge.at_close`."""
