"""The shell of a broker: server, dispatch, handlers, hosted partitions, coordinators and the metadata quorum.

`ottla.broker.node:Broker` builds and starts all of it. Handlers and coordinators get `ottla.broker.services`.
"""
