"""Operations on any cluster, Ottla or Apache Kafka, for commands and the console.

Each module has the operations on one kind of thing (`topics`, `groups`, `configs`, `transactions` and so on). They take
a `cluster.Cluster` and raise `cluster.ClusterError`. confluent-kafka sends the requests; those that it has no call for
go over `ottla.rpc`.
"""
