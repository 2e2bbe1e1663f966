"""Which of PyIceberg's errors say that a catalog or store is away for a while."""

from __future__ import annotations

_AWAY = frozenset(
    (
        *("ServiceUnavailableError", "ServerError", "CommitStateUnknownException", "TooManyRequestsError"),
        *("AuthorizationExpiredError", "WaitingForLockException", "TTransportException"),
        # requests, SQLAlchemy, botocore
        *("ConnectionError", "Timeout", "OperationalError", "InterfaceError", "TimeoutError"),
        *("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError"),
    )
)
_PACKAGES = ("pyiceberg", "requests", "urllib3", "sqlalchemy", "botocore", "thrift", "hive_metastore")


def is_outage(error: BaseException | None) -> bool:
    """Whether it is worth trying again, because a catalog or a store did not answer."""
    if error is None:
        return False
    names = {each.__name__ for each in type(error).__mro__}
    is_theirs = type(error).__module__.partition(".")[0] in _PACKAGES
    if isinstance(error, ConnectionError | TimeoutError) or (is_theirs and names & _AWAY):
        return True
    return is_outage(error.__cause__)
