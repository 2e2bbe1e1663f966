"""The context that every benchmark gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from benchmarks.peers import Peers
from benchmarks.topics import TopicSpec, produce

__all__ = ["Context"]

T = TypeVar("T")


@dataclass
class Context:
    """The broker, the peers, and the size of the run."""

    console: Console
    quick: bool
    """Small numbers, to show that everything runs. The figures mean little."""
    start_broker: Callable[[], str]
    """Start the broker and return its address."""
    start_peers: Callable[[], Peers]
    with_peers: bool = True
    """Measure peers, too."""
    plots: Path | None = None
    """The folder for plots; None: draw none."""
    _bootstrap: str | None = field(default=None, init=False)
    _peers: Peers | None = field(default=None, init=False)

    @property
    def bootstrap(self) -> str:
        """The broker's address. The first call starts the broker."""
        if self._bootstrap is None:
            self.say("starting the broker")
            self._bootstrap = self.start_broker()
        return self._bootstrap

    @property
    def peers(self) -> Peers:
        """The peers. The first call compiles them."""
        if self._peers is None:
            self._peers = self.start_peers()
        return self._peers

    def pick(self, full: T, quick: T) -> T:
        """Return `full`, or `quick` in a quick run."""
        return quick if self.quick else full

    def topic(self, spec: TopicSpec) -> str:
        """Return the topic's name. Write the topic if it does not exist."""
        bootstrap = self.bootstrap
        self.say(f"topic {spec.name}")
        seconds = produce(bootstrap, spec)
        if seconds:
            self.say(f"topic {spec.name}: {spec.records:,} records written in {seconds:.1f} s")
        return spec.name

    def say(self, text: str) -> None:
        """Print a line about the progress."""
        self.console.print(f"  {text}", style="dim", highlight=False)
