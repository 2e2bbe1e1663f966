"""How long the parts of a close may take, in seconds: `close_timeout` is what they add up to."""

from __future__ import annotations

WORK_SECONDS = 15.0
"""For what runs when `merge.at_close` is over: merges, upkeep, a look for logs. Side by side; what takes
longer is left, and done again at the next start."""
WATCH_SECONDS = 5.0
"""For the watch's last question to Spark."""
STOP_SECONDS = 10.0
"""For Spark to stop inside its Java process, which is killed then."""
JAVA_SECONDS = 15.0
"""For the Java process to end by itself, which is killed then."""
KILLED_SECONDS = 5.0
"""For a killed one to be gone, and for the calls that wait for it to fail."""
OUTPUT_SECONDS = 2.0
"""For the last lines of its output: a process that it started may have it, too."""

CLOSE_SECONDS = WORK_SECONDS + WATCH_SECONDS + STOP_SECONDS + JAVA_SECONDS + KILLED_SECONDS + OUTPUT_SECONDS
"""The longest that closing may take beyond `merge.at_close`."""
