"""Raft as Kafka has it: KIP-595, pre-vote (KIP-996), snapshots (KIP-630), voters that change (KIP-853).

`node` has the state machine, and `node_roles` its roles. `tick` tells it the time, the `on_*` methods tell it the
requests and responses of other nodes, and `propose` gives it records to commit. These only change its state. `ready`
then returns what is to be made durable and sent, and `advance` tells the node that it was done. Safety depends on the
order:

1. Make `Ready.hard_state` durable before any entry of its epoch is written and before any message is sent. Responses to
   other nodes are such messages.
2. Truncate the log to `Ready.truncate_to`, append `Ready.entries`, and flush.
3. Send `Ready.messages`.
4. Call `advance`. Only now the node's own log counts towards a majority, and a follower sends its next fetch.

Roles and transitions. In every role, a node that learns of a higher epoch becomes unattached, or a follower if the
leader of that epoch is known too.

    unattached  -> prospective   the election timeout has expired
                -> follower      the leader of the epoch becomes known
    prospective -> candidate     a majority would vote for this node
                -> follower, or unattached if no leader is known      a majority would not, or the timeout has expired
    candidate   -> leader        a majority has voted for it
                -> prospective   a majority has not, or the timeout has expired
    follower    -> prospective   no response came from the leader within the fetch timeout
    leader      -> resigned      it shuts down, its removal is committed, or a majority has not fetched for 1.5 fetch
                                 timeouts
    resigned    -> unattached    the election timeout has expired; the epoch becomes the next one

The voters are those of the latest record in the log that names them, committed or not; `membership` has the rules by
which a leader changes them. With kraft.version 0 there is no such record, and the voters are fixed. A node whose
removal is not committed yet may still stand for election, but it does not count its own vote; it does not stand if a
replica with another directory votes under its id.

An observer does not vote. It is a follower, or it is unattached and asks one voter after the other for the leader. A
follower whose leader does not respond goes on to fetch from it, and asks the other voters for a new one meanwhile. It
does not forget the leader, as in Kafka: only the connection may be lost, and the broker's heartbeats go to that leader.

A voter asks for the leader in the same way, between its elections, but only the nodes that it was told of at the start
and that do not vote by its log: the bootstrap servers. All voters that it knows may be gone, or elsewhere (KIP-853).
"""
