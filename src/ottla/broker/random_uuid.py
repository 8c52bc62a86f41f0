"""Random UUIDs from the environment, so that a simulation repeats them."""

import uuid

from ottla.env import Env


def random_uuid(env: Env) -> uuid.UUID:
    return uuid.UUID(int=env.random.getrandbits(128), version=4)
