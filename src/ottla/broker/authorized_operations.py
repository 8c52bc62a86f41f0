"""Bit fields of the operations that a client may perform (KIP-430). There is no authorizer: all of the resource's."""

# Numbers of Kafka's AclOperation.
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = range(3, 10)
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(10, 13)

NOT_REQUESTED = -(2**31)
TOPIC_OPERATIONS = sum(
    1 << operation
    for operation in (
        _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS,
    )
)  # fmt: skip
CLUSTER_OPERATIONS = sum(
    1 << operation
    for operation in (
        _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE,
    )
)  # fmt: skip
GROUP_OPERATIONS = sum(
    1 << operation for operation in (_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
)
